// Loads the page's modules. Browsers load modules only from a web server.
if (location.protocol === "file:") document.getElementById("offline").hidden = false;
else import("./page.js");
