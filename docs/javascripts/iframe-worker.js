// Material's search runs in a worker. Browsers start no workers for pages that are opened as files,
// so such a page runs the script of the worker in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) =>
        this.dispatchEvent(new MessageEvent("message", { data }));
      const script = this.inside.document.createElement("script");
      this.loaded = new Promise((done) => { script.onload = done; });
      script.src = url;
      this.inside.document.body.append(script);
    }

    postMessage(data) {
      this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
