"use strict";
// Each timeline becomes a drawing that can be enlarged. Without this script, and in print, its picture stays.
for (const figure of document.querySelectorAll("figure.timeline")) {
  const data = JSON.parse(figure.querySelector("script").textContent), picture = figure.querySelector("img");
  const HEAD = 16, LANE = 60, LEFT = 8, AXIS = 22, height = (HEAD + LANE) * data.lanes.length + AXIS;
  const canvas = document.createElement("canvas"), words = document.createElement("p"), nav = document.createElement("nav");
  const paint = canvas.getContext("2d");
  let from = 0, to = data.length, touched = null;

  for (const lane of data.lanes) {
    let start = 0;
    for (const box of lane.boxes) box[4] = start += box[4];
  }
  const width = () => canvas.clientWidth - 2 * LEFT;
  const x = time => LEFT + (time - from) / (to - from) * width();
  const time = at => from + (at - LEFT) / width() * (to - from);
  const said = us => us >= 1000 ? `${(us / 1000).toPrecision(4)} ms` : `${us} us`;

  function draw() {
    const scale = devicePixelRatio || 1;
    canvas.width = canvas.clientWidth * scale;
    canvas.height = height * scale;
    paint.setTransform(scale, 0, 0, scale, 0, 0);
    paint.clearRect(0, 0, canvas.width, canvas.height);
    paint.font = "12px system-ui, sans-serif";
    paint.textBaseline = "middle";
    data.lanes.forEach((lane, row) => {
      const top = row * (HEAD + LANE) + HEAD;
      paint.save();
      paint.beginPath();
      paint.rect(LEFT, top, width(), LANE);
      paint.clip();
      for (const [kind, name, bottom, tall, start, length] of lane.boxes) {
        const left = x(start), wide = Math.max(1, x(start + length) - left);
        if (left > LEFT + width() || left + wide < LEFT) continue;
        const y = top + (1 - bottom - tall) * LANE;
        paint.fillStyle = data.kinds[kind][1];
        paint.fillRect(left, y, wide > 4 ? wide - 0.6 : wide, tall * LANE - 1);
        if (wide > 40 && tall * LANE > 12) {
          paint.fillStyle = ["#0072B2", "#6B7280"].includes(data.kinds[kind][1]) ? "#fff" : "#1f2933";
          const text = data.names[name], room = Math.floor((Math.min(left + wide, LEFT + width()) - Math.max(left, LEFT) - 6) / 6.6);
          if (room > 3) paint.fillText(text.length > room ? text.slice(0, room - 1) + "\u2026" : text, Math.max(left, LEFT) + 3, y + tall * LANE / 2);
        }
      }
      paint.restore();
      paint.fillStyle = "#1f2933";
      paint.fillText(lane.text.replaceAll("\n", " "), LEFT, top - HEAD / 2 + 2);
    });
    const least = (to - from) * 90 / width(), ten = 10 ** Math.floor(Math.log10(least));
    const every = [1, 2, 5, 10].map(times => times * ten).find(step => step >= least);
    paint.fillStyle = "#4b5563";
    for (let tick = Math.ceil(from / every) * every; tick <= to; tick += every) {
      paint.fillRect(x(tick), height - AXIS, 1, 5);
      paint.fillText(said(tick), Math.min(x(tick) + 2, LEFT + width() - 48), height - 9);
    }
  }

  function look(start, end) {
    const length = Math.min(data.length, Math.max(end - start, Math.min(data.length, 20)));
    from = Math.max(0, Math.min(start, data.length - length));
    to = from + length;
    draw();
  }
  const zoom = (by, about = (from + to) / 2) => look(about - (about - from) * by, about + (to - about) * by);
  const move = by => look(from + by * (to - from), to + by * (to - from));

  function tell(event) {
    const place = canvas.getBoundingClientRect(), at = time(event.clientX - place.left);
    const down = event.clientY - place.top, row = Math.floor(down / (HEAD + LANE)), y = 1 - (down - row * (HEAD + LANE) - HEAD) / LANE;
    const slack = (to - from) / width() * 2, lane = data.lanes[row];
    const found = lane && lane.boxes.filter(([, , bottom, tall, start, length]) =>
      y >= bottom && y <= bottom + tall && at >= start - slack && at <= start + length + slack).pop();
    if (found) words.textContent = `${data.names[found[1]]}: ${said(found[5])}, from ${said(found[4])} (${data.kinds[found[0]][0]})`;
  }

  const actions = [["\u2212", "Smaller", () => zoom(2)], ["+", "Larger", () => zoom(0.5)], ["\u2190", "Earlier", () => move(-0.25)],
    ["\u2192", "Later", () => move(0.25)], ["Whole", "The whole timeline", () => look(0, data.length)]];
  for (const [text, title, act] of actions) {
    const button = document.createElement("button");
    button.textContent = text;
    button.title = title;
    button.setAttribute("aria-label", title);
    button.onclick = act;
    nav.append(button);
  }
  const keys = {"-": 0, "+": 1, "=": 1, ArrowLeft: 2, ArrowRight: 3, "0": 4};
  canvas.addEventListener("keydown", event => {
    if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
    actions[keys[event.key]][2]();
    event.preventDefault();
  });
  canvas.addEventListener("wheel", event => {
    if (!event.ctrlKey) return;  // the page scrolls
    zoom(event.deltaY > 0 ? 1.25 : 0.8, time(event.clientX - canvas.getBoundingClientRect().left));
    event.preventDefault();
  }, {passive: false});
  canvas.addEventListener("pointerdown", event => {
    touched = event.clientX;
    canvas.setPointerCapture(event.pointerId);
    tell(event);
  });
  canvas.addEventListener("pointermove", event => {
    if (touched !== null) {
      move((touched - event.clientX) / width());
      touched = event.clientX;
    } else tell(event);
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { touched = null; });
  canvas.addEventListener("dblclick", event => zoom(0.5, time(event.clientX - canvas.getBoundingClientRect().left)));

  canvas.tabIndex = 0;
  canvas.style.height = `${height}px`;
  canvas.setAttribute("role", "group");
  canvas.setAttribute("aria-label", `${picture.alt} Plus and minus change its size, arrows move it, 0 shows all.`);
  words.textContent = "Point at a box to see what it is. Drag to move; plus, minus or a double click to change the size.";
  const legend = document.createElement("p");
  for (const [text, colour] of data.kinds) {
    const key = document.createElement("span"), label = document.createElement("span");
    key.className = "key";
    key.style.background = colour;
    label.textContent = `${text}  `;
    legend.append(key, label);
  }
  const drawing = document.createElement("div");
  drawing.className = "drawing";
  drawing.append(canvas, nav, words, legend);
  figure.append(drawing);
  picture.classList.add("paper");
  addEventListener("resize", draw);
  draw();
}
