// Loaded before the first paint, so that the chosen theme does not flash. The default is the theme of the system.
const chosen = localStorage.getItem("arrester-theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
