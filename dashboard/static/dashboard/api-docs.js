// Swagger UI in the colours of the system. It has dark ones, but its own switch is in a bar that the page leaves out.

const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);

dark.addEventListener("change", follow);
follow();
