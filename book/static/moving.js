// The two figures that move: a ring all-reduce, and the schedules of pipelines. Without this script their pictures stay.
// All numbers are in window.MOVING, which book/moving.py writes.
(() => {
    const { words, ring, pipelines } = window.MOVING;
    const SVG = "http://www.w3.org/2000/svg";

    const fill = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name]);

    function make(parent, kind, attributes = {}, text = "") {
        const own = ["svg", "g", "rect", "text", "path", "line", "title"].includes(kind);
        const node = own ? document.createElementNS(SVG, kind) : document.createElement(kind);
        for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
        node.textContent = text;
        parent.append(node);
        return node;
    }

    // The frame of a figure: its controls, the drawing, and a sentence that screen readers read out.
    function frame(figure, alternative) {
        const place = document.createElement("div");
        place.className = "moving";
        figure.prepend(place);
        figure.classList.add("moves");
        const controls = make(place, "div", { class: "moving-controls" });
        const scroll = make(place, "div", { class: "moving-drawing" });
        const said = make(place, "p", { class: "moving-said", "aria-live": "polite" });
        const width = least => Math.max(least, scroll.clientWidth);
        const drawing = (width, height) => {
            scroll.replaceChildren();
            return make(scroll, "svg", { width, height, role: "img", "aria-label": alternative });
        };
        return { controls, width, drawing, said };
    }

    function slider(controls, name, least, most, value, changed) {
        const label = make(controls, "label", {}, `${name} `);
        const input = make(label, "input", { type: "range", min: least, max: most, value, step: 1 });
        const shown = make(label, "output", {}, value);
        input.addEventListener("input", () => {
            shown.textContent = input.value;
            changed();
        });
        return {
            get value() { return Number(input.value); },
            set value(number) { input.value = number; shown.textContent = input.value; },
            set most(number) { input.max = number; },
        };
    }

    function ringFigure(figure) {
        const { controls, width, drawing, said } = frame(figure, words.ring_alt);
        const sizes = Object.keys(ring).map(Number);
        const ranks = slider(controls, words.ranks, sizes[0], sizes.at(-1), 4, () => { step.value = 0; draw(); });
        const step = slider(controls, words.step, 0, 6, 0, () => draw());
        const back = make(controls, "button", { type: "button" }, words.previous);
        const on = make(controls, "button", { type: "button" }, words.next);
        back.addEventListener("click", () => { step.value -= 1; draw(); });
        on.addEventListener("click", () => { step.value += 1; draw(); });

        function draw() {
            const count = ranks.value, moments = ring[count], now = step.value;
            step.most = moments.length - 1;
            step.value = now;
            back.disabled = now === 0;
            on.disabled = now === moments.length - 1;
            const { parts, sent } = moments[now];
            const all = width(56 * count), column = all / count, box = column * 0.6, left = (column - box) / 2;
            const svg = drawing(all, 40 + 44 * count);
            for (let rank = 0; rank < count; rank++) {
                const x = column * rank + left;
                make(svg, "text", { x: x + box / 2, y: 22, class: "moving-head" }, column > 70 ? `${words.rank} ${rank}` : rank);
                parts[rank].forEach((inside, part) => {
                    const y = 34 + 44 * part;
                    const whole = inside.length === count;
                    const arrived = sent && sent[(rank + count - 1) % count] === part;
                    const kind = whole ? "whole" : inside.length > 1 ? "some" : "own";
                    make(svg, "rect", { x, y, width: box, height: 34, rx: 5, class: `part ${kind}${arrived ? " new" : ""}` });
                    make(svg, "text", { x: x + box / 2, y: y + 22, class: `part-text ${kind}` }, inside.join(box > 18 * count ? "+" : ""));
                });
                if (sent) {
                    const y = 34 + 44 * sent[rank] + 17, from = x + box + 3;
                    const last = rank === count - 1;
                    const to = last ? all - 2 : from + 2 * left - 8;
                    make(svg, "path", { d: `M${from} ${y}H${to}m-6 -5l6 5l-6 5`, class: "arrow" });
                    if (last) make(svg, "path", { d: `M2 ${y}H${left - 4}m-6 -5l6 5l-6 5`, class: "arrow" });
                }
            }
            const steps = moments.length - 1, values = { step: now, steps, sent: now, ranks: count };
            const phase = now === 0 ? words.before : now < count ? words.reduce_scatter : words.all_gather;
            said.textContent = `${fill(phase, values)} ${now ? fill(now === steps ? words.finished : words.sent, values) : ""}`;
        }
        window.addEventListener("resize", draw);
        draw();
    }

    function pipelineFigure(figure) {
        const { controls, width, drawing, said } = frame(figure, words.pipeline_alt);
        const PHONE = 560; // narrower drawings leave out what the sentence below also says
        const label = make(controls, "label", {}, `${words.schedule} `);
        const schedule = make(label, "select");
        for (const name of Object.keys(pipelines)) make(schedule, "option", { value: name }, words[name]);
        schedule.value = "one_forward_one_backward";
        schedule.addEventListener("change", () => draw());
        const gpipe = pipelines.gpipe, numbers = Object.keys(gpipe).map(Number), counts = Object.keys(gpipe[2]).map(Number);
        const stages = slider(controls, words.stages, numbers[0], numbers.at(-1), 4, () => draw());
        const micro = slider(controls, words.micro_batches, counts[0], counts.at(-1), 8, () => draw());

        function draw() {
            const { rows, end, bubble, held } = pipelines[schedule.value][stages.value][micro.value];
            const all = width(0), phone = all < PHONE, left = 74, right = phone ? 2 : 76;
            const row = 40, long = all - left - right, unit = long / end, size = phone ? 10 : 15;
            const svg = drawing(all, (phone ? 80 : 54) + row * rows.length);
            rows.forEach((operations, stage) => {
                const y = 8 + row * stage;
                make(svg, "text", { x: 0, y: y + 20, class: "moving-label" }, `${words.stage} ${stage}`);
                make(svg, "rect", { x: left, y, width: long, height: 32, class: "idle" });
                for (const [name, begin, until] of operations) {
                    const kind = name[0] === "F" ? "forward" : "backward", x = left + begin * unit, wide = (until - begin) * unit;
                    const box = make(svg, "rect", { x, y, width: wide, height: 32, class: kind });
                    make(box, "title", {}, `${words[kind]} ${name.slice(1)}`);
                    const number = name.slice(1), style = `font-size: ${size}px`;
                    if (wide > 0.7 * size * number.length)
                        make(svg, "text", { x: x + wide / 2, y: y + 21, class: `${kind}-text`, style }, number);
                }
                if (!phone) make(svg, "text", { x: left + long + 6, y: y + 20, class: "moving-label" }, fill(words.holds, { held: held[stage] }));
            });
            const y = 24 + row * rows.length;
            let x = left;
            for (const kind of ["forward", "backward"]) {
                make(svg, "rect", { x, y, width: 16, height: 16, class: kind });
                make(svg, "text", { x: x + 22, y: y + 13, class: "moving-label" }, words[kind]);
                x += 120;
            }
            make(svg, "text", { x: left + long, y: y + (phone ? 40 : 13), class: "moving-label moving-end" }, `${words.time} →`);
            said.textContent = `${fill(words.bubble, { bubble, end })} ${words.memory} ` +
                held.map((count, stage) => `${words.stage} ${stage}: ${count}`).join(", ") + ".";
        }
        window.addEventListener("resize", draw);
        draw();
    }

    document.addEventListener("DOMContentLoaded", () => {
        document.querySelectorAll("figure.moving-ring").forEach(ringFigure);
        document.querySelectorAll("figure.moving-pipeline").forEach(pipelineFigure);
    });
})();
