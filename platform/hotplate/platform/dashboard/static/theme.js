// Before anything is drawn: the look that was chosen here; without one it is the system's.
try {
  const chosen = localStorage.getItem("hotplate.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage may be forbidden; then every page looks as the system does.
}
