"use strict";
// The browser itself turns pages, by Page Down, Space and the keys up and down. These keys are added; with notes too.
const slides = [...document.querySelectorAll("section")];
const number = () => slides.filter(slide => slide.getBoundingClientRect().top < innerHeight / 2).length - 1;

function show(slide) {
  if (slide) slide.scrollIntoView({block: "center"});
}

function notes() {
  const slide = slides[number()];
  document.documentElement.classList.toggle("notes");
  show(slide);  // the notes of those above have moved it
}

const keys = {n: notes, N: notes, ArrowLeft: () => show(slides[number() - 1]), ArrowRight: () => show(slides[number() + 1])};
addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
  keys[event.key]();
  event.preventDefault();
});
