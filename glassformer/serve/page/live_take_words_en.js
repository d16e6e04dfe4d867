// Every word of taking things away from the live page, in English (see live_words_en.js).

export const TAKE_EN = {
  take: "Take it away",
  address: "Copy the address of this view",
  copied: "copied",
  page: "All views as look.html",
  csv: "Numbers as CSV",
  svg: "Drawing as SVG",
  png: "Picture as PNG",
  noPicture: "This view has no drawing or map.",
};
