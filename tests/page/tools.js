// What happens on the page is written down from its start.
const errors = [];
addEventListener("error", (event) => errors.push(String(event.message)));
addEventListener("unhandledrejection", (event) => errors.push(String(event.reason)));
addEventListener("securitypolicyviolation", (event) => errors.push(`policy: ${event.violatedDirective} ${event.blockedURI}`));

// A browser without a window has no clipboard that pages can read.
let clipboard = "";
Object.defineProperty(navigator, "clipboard", { value: { writeText: async (text) => { clipboard = text; } } });

/** Runs the steps of a test, and leaves its result in the page. */
async function probe(steps) {
  let result;
  try {
    result = await steps();
  } catch (error) {
    errors.push(String(error.stack ?? error));
  }
  const element = document.createElement("script");
  element.id = "result";
  element.type = "application/json";
  element.textContent = JSON.stringify({ errors, result }).replaceAll("<", "\\u003c");
  document.body.append(element);
  // A page in a frame tells it to the one around.
  if (parent !== window) parent.postMessage(element.textContent, "*");
}

const wait = (time = 50) => new Promise((done) => setTimeout(done, time));

/** Presses a key where the focus is. */
async function press(key) {
  (document.activeElement ?? document.body).dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  await wait();
}

const query = (selector) => document.querySelector(selector);
const texts = (selector) => [...document.querySelectorAll(selector)].map((element) => element.textContent);
const cell = (...index) => query(`#view [data-cell="${index.join("/")}"]`);
const point = async (element) => {
  element.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
  await wait();
};
const click = async (element) => {
  element.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }));
  await wait();
};
const open = async (address) => {
  location.hash = address;
  await wait();
};
