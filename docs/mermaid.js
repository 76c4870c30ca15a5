// Draws the diagrams of the pages, as GitHub does. Without a network, a diagram stays as text.
(() => {
  const blocks = document.querySelectorAll("pre > code.language-mermaid");
  if (blocks.length === 0) {
    return;
  }
  const script = document.createElement("script");
  script.src = "https://cdn.jsdelivr.net/npm/mermaid@11.17.2/dist/mermaid.min.js";
  script.integrity = "sha384-EOXBFmc3gx5mb+vn0vPvvGqACToJD24hhacX5Yx+8NUUQrHIle/Qi5Bg9o3zKwW2";
  script.crossOrigin = "anonymous";
  script.onload = () => {
    for (const block of blocks) {
      const diagram = document.createElement("pre");
      diagram.className = "mermaid";
      diagram.textContent = block.textContent;
      block.parentElement.replaceWith(diagram);
    }
    const dark = ["coal", "navy", "ayu"].some((theme) => document.documentElement.classList.contains(theme));
    window.mermaid.initialize({ startOnLoad: false, theme: dark ? "dark" : "default" });
    window.mermaid.run();
  };
  document.head.append(script);
})();
