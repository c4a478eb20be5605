"use strict";
// Airflow shows this page in a frame that may not open windows or lead its own window elsewhere.
// A link to Airflow is therefore followed by Airflow's window itself.

document.documentElement.classList.toggle("framed", window.parent !== window);

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-airflow]");
  if (!link || window.parent === window || event.defaultPrevented) return;
  event.preventDefault();
  const outside = window.parent.document.createElement("a");
  outside.href = link.href;
  outside.click();
});

for (const button of document.querySelectorAll("button[data-reload]")) {
  button.addEventListener("click", () => window.location.reload());
}
