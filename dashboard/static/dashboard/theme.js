// Loaded before the first paint, so that a chosen theme never flashes; without a choice the system's holds.
const chosen = localStorage.getItem("arrester-theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
