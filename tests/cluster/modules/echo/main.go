// A server for pods of tests: it answers with its own name and the address of the caller; given a URL, it asks that
// one instead and prints what came.
package main

import (
	"io"
	"log"
	"net/http"
	"os"
	"strings"
)

func main() {
	if len(os.Args) > 1 { // as a probe: there is no shell in the image
		answer, err := http.Get(os.Args[1])
		if err != nil {
			log.Fatal(err)
		}
		if _, err := io.Copy(os.Stdout, answer.Body); err != nil {
			log.Fatal(err)
		}
		return
	}
	http.HandleFunc("/", func(answer http.ResponseWriter, request *http.Request) {
		name, _ := os.Hostname()
		caller, _, _ := strings.Cut(request.RemoteAddr, ":")
		io.WriteString(answer, name+" "+caller+"\n")
	})
	log.Fatal(http.ListenAndServe(":3000", nil))
}
