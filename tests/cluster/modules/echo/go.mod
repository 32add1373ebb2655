module hotplate.dev/tests/cluster/echo

go 1.26.0
