"use strict";

// ---- lines that belong together ----

function mark(place, seen) {
  if (!place) return;
  for (const row of document.querySelectorAll(".row"))
    if (row.dataset.place === place) row.classList.toggle("seen", seen);
}
for (const row of document.querySelectorAll(".row")) {
  row.addEventListener("mouseenter", () => mark(row.dataset.place, true));
  row.addEventListener("mouseleave", () => mark(row.dataset.place, false));
}

// ---- the two forms of tile IR ----

function show(form) {
  for (const button of document.querySelectorAll("button[data-form]")) {
    const chosen = button.dataset.form === form;
    button.setAttribute("aria-pressed", String(chosen));
    document.getElementById(button.dataset.form).hidden = !chosen;
  }
}
for (const button of document.querySelectorAll("button[data-form]"))
  button.addEventListener("click", () => show(button.dataset.form));
show("written");

// ---- layouts ----

const side = 9;

function paint(tile, cell) {
  if (!tile.in_memory) return `hsl(${(cell[0] * 360) / 32} 65% ${45 + (cell[1] % 4) * 12}%)`;
  return `hsl(${(Math.floor(cell / word) % banks) * (360 / banks)} 65% 60%)`;
}
function said(tile, row, col) {
  const cell = tile.rows[row][col];
  const where = tile.in_memory
    ? `byte ${cell}, bank ${Math.floor(cell / word) % banks}`
    : `warp ${cell[1]}, lane ${cell[0]}, register ${cell[2]}`;
  return `${tile.name}[${tile.shape.length > 1 ? `${row}, ` : ""}${col}]: ${where}`;
}
for (const canvas of document.querySelectorAll("canvas")) {
  const tile = tiles[Number(canvas.dataset.tile)];
  const text = canvas.parentElement.querySelector(".cell");
  canvas.height = tile.rows.length * side;
  canvas.width = tile.rows[0].length * side;
  const context = canvas.getContext("2d");
  tile.rows.forEach((cells, row) =>
    cells.forEach((cell, col) => {
      context.fillStyle = paint(tile, cell);
      context.fillRect(col * side, row * side, side - 1, side - 1);
    }),
  );
  canvas.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top) / side);
    const col = Math.floor((event.clientX - box.left) / side);
    if (row >= 0 && col >= 0 && row < tile.rows.length && col < tile.rows[0].length)
      text.textContent = said(tile, row, col);
  });
}
