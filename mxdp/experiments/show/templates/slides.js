"use strict";
// The browser itself turns pages, by Page Down, Space and the keys up and down. These keys are added.
const slides = [...document.querySelectorAll("section")];
const number = () => slides.filter(slide => slide.getBoundingClientRect().top < innerHeight / 2).length - 1;

function show(slide) {
  if (slide) slide.scrollIntoView({block: "center"});
}

function notes() {
  const slide = slides[number()];
  const shown = document.documentElement.classList.toggle("notes");
  // The notes lie below the slide, so below the window. Those of other slides have moved both.
  if (shown) document.getElementById(slide.dataset.notes).scrollIntoView({block: "end"});
  else show(slide);
}

const keys = {n: notes, N: notes, ArrowLeft: () => show(slides[number() - 1]), ArrowRight: () => show(slides[number() + 1])};
addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
  keys[event.key]();
  event.preventDefault();
});
