// Loads the page's modules. Browsers load modules only from a web server.
if (location.protocol === "file:") document.getElementById("offline").hidden = false;
else {
  import("./page.js").catch((error) => {
    const verdict = document.getElementById("verdict");
    verdict.textContent = `The playground could not be loaded. Load the page again. (${error.message})`;
    verdict.className = "invalid";
  });
}
