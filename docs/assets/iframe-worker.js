/* A page read from the disk (file://) may start no worker, and the search is one. This stands in for it there: the worker's
   script runs in a hidden frame. Over http nothing is changed. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.inside = frame.contentWindow;
      this.frame = frame;
      this.inside.answer = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      this.ready = new Promise((resolve) => {
        this.inside.started = resolve;
      });
      const page = this.inside.document;
      page.open();
      page.write(
        "<!doctype html><body><script>" +
          "window.postMessage = (data) => answer(data);" +
          "window.importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done) => {" +
          "const script = document.createElement('script'); script.src = url; script.onload = done; script.onerror = done;" +
          "document.body.appendChild(script); })), Promise.resolve());" +
          `<\/script><script src="${new URL(url, location.href)}" onload="started()"><\/script></body>`,
      );
      page.close();
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
  window.IFrameWorker = window.Worker; // by this name the search knows that its other scripts lie beside it, not beside the page
}
