// SPDX-License-Identifier: Apache-2.0
//
// Tests of the flame graph page in a real browser:  node tests/ui/run.mjs [NAME_PART]
//
//   FLYBALL_HTML=x.html        run only what holds for any recording, on this one
//   FLYBALL_SCREENSHOT=x.png   write a picture of the page (and x-dark.png, x-top.png beside it)
//   FLYBALL_UI_NODE=DIR        where packages and built pages go (default build/ui-node)
//   FLYBALL_CHROMIUM=PATH      the browser (default /usr/bin/chromium)
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { HOSTILE, deep, empty, escapeJson, large, small } from "./sample.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const ui = resolve(here, "../../ui");
const work = resolve(process.env.FLYBALL_UI_NODE ?? join(here, "../../build/ui-node"));
const chromium = process.env.FLYBALL_CHROMIUM ?? "/usr/bin/chromium";
const recording = process.env.FLYBALL_HTML && resolve(process.env.FLYBALL_HTML);
const picture = process.env.FLYBALL_SCREENSHOT && resolve(process.env.FLYBALL_SCREENSHOT);
const only = process.argv[2] ?? "";

/* -- preparing ------------------------------------------------------------------------------- */

function installPlaywright() {
	const dir = join(work, "tests");
	const stamp = join(dir, ".installed");
	const lock = createHash("sha256").update(readFileSync(join(here, "package-lock.json"))).digest("hex");
	if (!existsSync(stamp) || readFileSync(stamp, "utf8") !== lock) {
		mkdirSync(dir, { recursive: true });
		for (const file of ["package.json", "package-lock.json", ".npmrc"])
			copyFileSync(join(here, file), join(dir, file));
		execFileSync("npm", ["ci", "--ignore-scripts", "--prefer-offline"], { cwd: dir, stdio: ["ignore", "ignore", "inherit"] });
		writeFileSync(stamp, lock);
	}
	return createRequire(join(dir, "package.json"))("playwright-core");
}

const TEMPLATE = join(work, "page.html");
const parts = { build: "" };

function pageWith(name, json) {
	const file = join(work, `${name}.html`);
	const [before, after] = parts.build.split("@FLYBALL_DATA@");
	writeFileSync(file, before + json + after);
	return file;
}

/* -- a page under watch ------------------------------------------------------------------------ */

class Watch {
	static async open(browser, file, options = {}) {
		const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, colorScheme: "light", ...options });
		const page = await context.newPage();
		const watch = new Watch();
		watch.page = page;
		watch.context = context;
		watch.trouble = [];
		const url = pathToFileURL(file).href;
		page.on("request", (request) => {
			if (request.url() !== url && !request.url().startsWith("data:"))
				watch.trouble.push(`request for ${request.url()}`);
		});
		page.on("dialog", (dialog) => {
			watch.trouble.push(`dialog ${dialog.message()}`);
			dialog.dismiss();
		});
		page.on("console", (message) => {
			if (message.type() === "error" || message.type() === "warning")
				watch.trouble.push(`console ${message.type()}: ${message.text()}`);
		});
		page.on("pageerror", (error) => watch.trouble.push(`error ${error.message}`));
		page.on("popup", () => watch.trouble.push("popup"));
		await page.goto(url);
		return watch;
	}

	async close() {
		await this.context.close();
		assert.deepEqual(this.trouble, []);
	}

	text(selector) {
		return this.page.locator(selector).innerText();
	}

	names() {
		return this.page.locator("#flame g.frame").evaluateAll((all) => all.map((g) => g.getAttribute("name")));
	}

	/* [name, x, width] of the drawn frames of one depth */
	row(depth) {
		return this.page.locator("#flame g.frame").evaluateAll((all, y) => all
			.map((g) => [g.getAttribute("name"), ...g.getAttribute("transform").match(/[\d.]+/g).map(Number), Number(g.getAttribute("width"))])
			.filter(([, , at]) => at === y).map(([name, x, , width]) => [name, x, width]), depth * 18);
	}

	frame(name) {
		return this.page.locator(`#flame g.frame[name=${JSON.stringify(name)}]`).first();
	}

	async search(text) {
		await this.page.fill("#search", text);
		await this.page.waitForTimeout(200);
	}

	data() {
		return this.page.evaluate(() => JSON.parse(document.getElementById("flyball-data").textContent));
	}
}

const tests = [];
const test = (name, run) => tests.push({ name, run, generic: false });
const generic = (name, run) => tests.push({ name, run, generic: true });

const sum = (samples) => samples.reduce((total, sample) => total + sample[4], 0);
const share = (part, whole) => (100 * part) / whole;
const shownShare = (text) => Number(/([\d.]+) %/.exec(text)[1]);

/* -- true for any recording -------------------------------------------------------------------- */

generic("opens without a request, a dialog or an error", async ({ open }) => {
	const watch = await open();
	assert.equal(await watch.page.locator("#summary .cell").count() > 5, true);
	await watch.close();
});

generic("carries a policy that names its only script by hash", async ({ file }) => {
	const html = readFileSync(file, "utf8");
	const policy = /Content-Security-Policy" content="([^"]+)"/.exec(html)[1];
	assert.match(policy, /default-src 'none'/);
	assert.doesNotMatch(policy, /unsafe/);
	const scripts = [...html.matchAll(/<script>([^]*?)<\/script>/g)];
	assert.equal(scripts.length, 1);
	const hash = createHash("sha256").update(scripts[0][1]).digest("base64");
	assert.ok(policy.includes(`script-src 'sha256-${hash}'`));
	assert.equal(html.match(/<script/g).length, 2, "the script and the data, nothing else");
	assert.doesNotMatch(html, /<(link|img|iframe|script)[^>]+(src|href)="(?!data:)/);
});

generic("draws a frame, or says in a sentence why not", async ({ open }) => {
	const watch = await open();
	const data = await watch.data();
	if (data.samples.length)
		assert.ok((await watch.names()).length > 1);
	else
		assert.match(await watch.text("#empty"), /^No sample/);
	await watch.close();
});

generic("shows the ledger's figures", async ({ open }) => {
	const watch = await open();
	const { ledger } = await watch.data();
	const strip = (await watch.text("#summary")).replace(/,/g, "");
	assert.ok(strip.includes(`Samples taken\n${ledger.taken}`), strip);
	assert.ok(strip.includes(`Delivered\n${ledger.delivered}`), strip);
	assert.equal(await watch.page.locator("text=does not balance").count(), 0);
	await watch.close();
});

generic("zooms with a click, and out with Escape", async ({ open, skip }) => {
	const watch = await open();
	if (!(await watch.data()).samples.length)
		return skip("no samples");
	const before = await watch.names();
	const [name, , width] = (await watch.row(1))[0];
	await watch.page.locator("#flame g.frame").nth(0).waitFor();
	await watch.frame(name).click();
	const [, , zoomed] = (await watch.row(1))[0];
	assert.ok(zoomed >= width && zoomed > 1000, `${name}: ${width} to ${zoomed}`);
	assert.equal(await watch.page.locator("#crumbs li").count(), 2);
	await watch.page.keyboard.press("Escape");
	assert.deepEqual(await watch.names(), before);
	await watch.close();
});

generic("offers all, per program, per process and per thread as roots", async ({ open, skip }) => {
	const watch = await open();
	const data = await watch.data();
	if (!data.samples.length)
		return skip("no samples");
	for (const [root, pattern] of [["process", /\(\d+\)$/], ["thread", /\(\d+\)$/]]) {
		await watch.page.selectOption("#root", root);
		const row = await watch.row(1);
		assert.ok(row.length >= 1);
		for (const [name] of row)
			assert.match(name, pattern);
	}
	await watch.page.selectOption("#root", "program");
	const programs = (await watch.row(1)).map(([name]) => name);
	assert.ok(programs.length >= 1);
	const distinct = new Set(data.processes.map(([, comm, exe]) => `${comm} ${exe}`));
	assert.ok(programs.length <= distinct.size, programs.join());
	for (const name of programs)
		assert.doesNotMatch(name, / \(\d+\)$/);
	await watch.page.selectOption("#root", "all");
	assert.equal((await watch.row(0))[0][0], "all");
	await watch.close();
});

generic("sorts the Top table by a click on a header", async ({ open, skip }) => {
	const watch = await open();
	if (!(await watch.data()).samples.length)
		return skip("no samples");
	await watch.page.click("#tab-top");
	const column = (n) => watch.page.locator(`.top tbody tr td:nth-child(${n})`).evaluateAll((all) =>
		all.map((td) => (td.textContent.startsWith("<") ? 0.005 : Number(td.textContent.replace(" %", "")))));
	const sorted = (list, sign) => list.every((value, i) => i === 0 || sign * (value - list[i - 1]) >= 0);
	assert.ok(sorted(await column(2), -1), "self, descending");
	await watch.page.click(".top th >> text=Total");
	assert.ok(sorted(await column(4), -1), "total, descending");
	await watch.page.click(".top th >> text=Total");
	assert.ok(sorted(await column(4), 1), "total, ascending");
	await watch.page.click(".top th >> text=Function");
	assert.equal(await watch.page.locator(".top th:nth-child(3)").getAttribute("aria-sort"), "ascending");
	await watch.close();
});

generic("searches, and clears with Escape", async ({ open, skip }) => {
	const watch = await open();
	if (!(await watch.data()).samples.length)
		return skip("no samples");
	await watch.page.selectOption("#root", "process"); // so that samples without a stack match, too
	await watch.search("/./");
	assert.match(await watch.text("#match"), /100 % matched/);
	await watch.search("\u0001no such function\u0001");
	assert.match(await watch.text("#match"), /^0 % matched/);
	await watch.page.keyboard.press("Escape");
	assert.equal(await watch.page.inputValue("#search"), "");
	assert.equal(await watch.text("#match"), "");
	await watch.close();
});

generic("cycles the theme with t", async ({ open }) => {
	const watch = await open();
	const theme = () => watch.page.evaluate(() => document.documentElement.dataset.theme);
	assert.equal(await theme(), "light");
	await watch.page.keyboard.press("t");
	await watch.page.keyboard.press("t");
	assert.equal(await theme(), "dark");
	assert.match(await watch.text("#theme"), /dark/);
	await watch.page.reload();
	assert.equal(await theme(), "dark", "remembered");
	await watch.close();
});

/* -- true for the sample ------------------------------------------------------------------------ */

test("build: the template holds the marker once, all licences, and no address to load from", async () => {
	assert.equal(parts.build.split("@FLYBALL_DATA@").length, 2);
	assert.ok(parts.build.includes('<script type="application/json" id="flyball-data">@FLYBALL_DATA@</script>'));
	for (const text of ["d3-flame-graph 5", "Apache License", "Mike Bostock", "SPDX-License-Identifier: Apache-2.0"])
		assert.ok(parts.build.includes(text), text);
	const lock = readFileSync(join(ui, "package-lock.json"), "utf8") + readFileSync(join(here, "package-lock.json"), "utf8");
	assert.doesNotMatch(lock, /https?:/);
});

test("build: without npm it fails with one sentence", async () => {
	const bin = mkdtempSync(join(tmpdir(), "flyball-ui-"));
	try {
		execFileSync("/bin/sh", [join(ui, "build.sh"), ui, join(work, "page"), join(bin, "x.html")], { env: { PATH: bin }, encoding: "utf8", stdio: "pipe" });
		assert.fail("it succeeded");
	} catch (error) {
		assert.match(error.stderr ?? error.message, /^ui\/build\.sh: .*install.*\n$/);
		assert.equal(existsSync(join(bin, "x.html")), false);
	} finally {
		rmSync(bin, { recursive: true });
	}
});

test("hostile names are text", async ({ open }) => {
	const watch = await open();
	await watch.page.selectOption("#root", "all");
	await watch.page.selectOption("#process", "3");
	const names = await watch.names();
	for (const name of HOSTILE.filter((one) => !one.includes("\u202e")))
		assert.ok(names.includes(name), name);
	assert.ok(names.includes("name\\u202egpj.exe\\u0000\\u0007"), "what cannot be seen is shown");
	for (const name of [HOSTILE[0], HOSTILE[1], HOSTILE[3]]) {
		await watch.frame(name).hover();
		assert.equal(await watch.page.locator("#tip b").textContent(), name);
		await watch.frame(name).click();
		assert.ok((await watch.text("#crumbs")).includes(name));
		assert.ok((await watch.text("#details")).startsWith(name));
		await watch.page.click("#reset");
	}
	await watch.page.click("#tab-top");
	assert.ok((await watch.text("#panel-top")).includes(HOSTILE[0]));
	assert.equal(await watch.page.locator("img, iframe, body svg svg, b > img").count(), 0);
	assert.equal(await watch.page.locator("script").count(), 2);
	await watch.close();
});

test("widths are shares of time", async ({ open, data }) => {
	const watch = await open();
	const total = sum(data.samples);
	const all = (await watch.row(0))[0][2];
	const row = await watch.row(1);
	assert.equal(row.length, data.processes.length);
	for (const [i, [pid, comm]] of data.processes.entries()) {
		const found = row.find(([name]) => name === `${data.strings[comm]} (${pid})`);
		const expected = sum(data.samples.filter(([process]) => process === i)) / total;
		assert.ok(Math.abs(found[2] / all - expected) < 0.002, found[0]);
	}
	await watch.close();
});

test("per thread and process filter", async ({ open, data }) => {
	const watch = await open();
	await watch.page.selectOption("#root", "thread");
	const names = (await watch.row(1)).map(([name]) => name);
	for (const name of ["postgres (4120)", "bgwriter (4133)", "node (5200)", "V8Worker (5204)"])
		assert.ok(names.includes(name), name);
	await watch.page.selectOption("#process", "1");
	assert.deepEqual((await watch.row(1)).map(([name]) => name), ["node (5200)", "V8Worker (5204)"]);
	const part = sum(data.samples.filter(([process]) => process === 1));
	assert.ok(Math.abs(shownShare(await watch.text("#details")) - share(part, sum(data.samples))) < 0.06);
	await watch.page.selectOption("#process", "-1");
	assert.equal((await watch.row(1)).length, names.length);
	await watch.close();
});

test("search counts nothing twice, takes a regex, and tells a bad one", async ({ open, data }) => {
	const watch = await open();
	const of = (test) => share(sum(data.samples.filter(([, , , stack]) => stack.some((frame) => test(data.strings[data.frames[frame][0]])))), sum(data.samples));
	const expectShare = async (text, test) => {
		await watch.search(text);
		assert.ok(Math.abs(shownShare(await watch.text("#match")) - of(test)) < 0.06, `${text}: ${await watch.text("#match")}`);
	};
	await watch.page.selectOption("#root", "all");
	await expectShare("EXECUTORRUN", (name) => name === "ExecutorRun");
	await expectShare("/^(ExecutorRun|handleRequest)/", (name) => /^(ExecutorRun|handleRequest)/.test(name));
	await watch.page.selectOption("#process", "2");
	await watch.search("fib"); // a share of the chosen process
	assert.match(await watch.text("#match"), /^100 % matched/);
	await watch.search("/(/");
	assert.match(await watch.text("#match"), /not a valid/);
	assert.equal(await watch.page.getAttribute("#search", "aria-invalid"), "true");
	await watch.search("ExecSeqScan");
	await watch.page.selectOption("#process", "-1");
	const fill = await watch.frame("ExecSeqScan").locator("rect").getAttribute("fill");
	assert.notEqual(fill, await watch.frame("ExecHashJoin").locator("rect").getAttribute("fill"));
	assert.match(fill, /hsl\(292/);
	await watch.page.click("#tab-top");
	assert.equal(await watch.page.locator(".top tbody tr").count(), 1);
	await watch.close();
});

test("zoom: breadcrumbs and ancestors lead back", async ({ open }) => {
	const watch = await open();
	await watch.frame("ExecHashJoin").click();
	assert.ok(Number(await watch.frame("ExecHashJoin").getAttribute("width")) > 1200);
	assert.equal(await watch.frame("PortalRun").getAttribute("class"), "frame fade");
	assert.ok(!(await watch.names()).includes("ExecSeqScan"), "siblings are gone");
	assert.match(await watch.text("#crumbs .gap"), /… \d+ more …/);
	await watch.frame("PortalRun").click();
	assert.ok((await watch.names()).includes("ExecSeqScan"));
	await watch.page.click("#crumbs li:nth-child(2) button");
	assert.match(await watch.text("#crumbs"), /postgres \(4120\)/);
	await watch.page.click("#reset");
	assert.equal(await watch.page.locator("#crumbs li").count(), 1);
	assert.equal(await watch.page.isDisabled("#reset"), true);
	await watch.close();
});

test("keyboard: / focuses the search, arrows move, Enter zooms, ? helps", async ({ open }) => {
	const watch = await open();
	const { page } = watch;
	await page.keyboard.press("/");
	assert.equal(await page.evaluate(() => document.activeElement.id), "search");
	await page.keyboard.type("t/?");
	assert.equal(await page.inputValue("#search"), "t/?", "keys are text there");
	await page.keyboard.press("Escape");
	await page.keyboard.press("ArrowDown"); // to the graph
	assert.equal(await page.evaluate(() => document.activeElement.id), "flame");
	const at = () => page.locator("#frame-current").getAttribute("aria-label");
	assert.equal(await at(), "all");
	await page.keyboard.press("ArrowDown");
	assert.equal(await at(), "postgres (4120)");
	await page.keyboard.press("ArrowRight");
	assert.equal(await at(), "node (5200)");
	assert.match(await watch.text("#details"), /^node \(5200\)/);
	await page.keyboard.press("ArrowLeft");
	await page.keyboard.press("ArrowUp");
	assert.equal(await at(), "all");
	await page.keyboard.press("ArrowDown");
	await page.keyboard.press("ArrowRight");
	await page.keyboard.press("Enter");
	assert.match(await watch.text("#crumbs"), /node \(5200\)/);
	await page.keyboard.press("Escape");
	assert.equal(await page.locator("#crumbs li").count(), 1);
	await page.keyboard.press("?");
	assert.equal(await page.locator("#help").getAttribute("open"), "");
	await page.keyboard.press("Escape");
	assert.equal(await page.locator("#help").getAttribute("open"), null);
	await page.focus("#tab-flame");
	await page.keyboard.press("ArrowRight");
	assert.equal(await page.locator("#tab-top").getAttribute("aria-selected"), "true");
	await watch.close();
});

test("details give name, module, self, total and share", async ({ open }) => {
	const watch = await open();
	await watch.frame("heap_getnextslot").hover();
	const tip = await watch.text("#tip");
	assert.match(tip, /^heap_getnextslot\npostgres · user\ntotal 2\.12 s CPU, [\d.]+ % of all\nself 2\.12 s CPU, [\d.]+ %/);
	await watch.page.mouse.move(5, 5);
	assert.equal(await watch.page.isVisible("#tip"), false);
	await watch.close();
});

test("the strip tells what was dropped, why, and the cost", async ({ open }) => {
	const watch = await open();
	const strip = await watch.text("#summary");
	for (const part of ["Duration\n10.0 s", "CPUs\n2", "Rate\n99 Hz", "Dropped\n14", "≈ 7", "0.28 %\n31.0 ms user, 24.0 ms system, BPF not measured"])
		assert.ok(strip.includes(part), `${part} in ${strip}`);
	const notes = await watch.text("#notes");
	assert.match(notes, /Dropped ring_full 12 samples \([\d.]+ %\) The ring buffer was full/);
	assert.match(notes, /Degraded depth_limit 25 samples, .* The stack was deeper/);
	assert.doesNotMatch(notes, /Never shown/);
	const colours = await watch.page.locator("#legend .swatch").evaluateAll((all) => all.map((one) => getComputedStyle(one).backgroundColor));
	assert.equal(new Set(colours).size, 5, "each kind has its colour");
	await watch.close();
});

test("the Top table counts a recursive function once, and leads to the graph", async ({ open, data }) => {
	const watch = await open();
	await watch.page.click("#tab-top");
	const rows = await watch.page.locator(".top tbody tr").evaluateAll((all) => all.map((tr) => [...tr.cells].map((td) => td.textContent)));
	const fib = rows.find((row) => row[4] === "fib");
	assert.equal(fib[2], `${((85 * 10101010) / 1e6).toFixed(0)} ms`);
	assert.equal(rows.length, new Set(data.samples.flatMap((sample) => sample[3])).size);
	await watch.page.click(".top .name button:text-is('fib')");
	assert.equal(await watch.page.isVisible("#flame"), true);
	assert.equal(await watch.page.inputValue("#search"), "fib");
	await watch.close();
});

test("follows the system's dark mode", async ({ open }) => {
	const watch = await open({ colorScheme: "dark" });
	const background = () => watch.page.evaluate(() => getComputedStyle(document.body).backgroundColor);
	const dark = await background();
	const fill = await watch.frame("all").locator("rect").getAttribute("fill");
	await watch.page.emulateMedia({ colorScheme: "light" });
	await watch.page.waitForSelector("html[data-theme=light]");
	assert.notEqual(await background(), dark);
	assert.notEqual(await watch.frame("all").locator("rect").getAttribute("fill"), fill);
	await watch.close();
});

test("follows the window's width", async ({ open }) => {
	const watch = await open();
	const before = (await watch.row(0))[0][2];
	await watch.page.setViewportSize({ width: 700, height: 700 });
	await watch.page.waitForTimeout(300);
	const after = (await watch.row(0))[0][2];
	assert.ok(after < before && after > 600, `${before} to ${after}`);
	assert.equal(await watch.page.evaluate(() => document.documentElement.scrollWidth), 700);
	await watch.close();
});

test("every control has a name", async ({ open }) => {
	const watch = await open();
	const nameless = await watch.page.locator("button, input, select, [role]").evaluateAll((all) => all
		.filter((one) => !(one.hidden || one.textContent.trim() || one.ariaLabel || one.labels?.length || one.getAttribute("aria-labelledby") || one.id === "details"))
		.map((one) => one.outerHTML.slice(0, 80)));
	assert.deepEqual(nameless, []);
	await watch.close();
});

test("an empty profile says what to do", async ({ openWith }) => {
	const watch = await openWith("empty", escapeJson(empty()));
	assert.match(await watch.text("#empty"), /^No samples: .*-d.*-F.*-a/);
	await watch.close();
});

test("broken data say so", async ({ openWith }) => {
	for (const [json, sentence] of [["@", /no readable profile/], ['{"version":1,', /no readable profile/], ['{"version":2}', /version 2/], ["null", /version/]]) {
		const watch = await openWith("broken", json);
		assert.match(await watch.text("#empty"), sentence);
		await watch.close();
	}
	const wild = small();
	wild.samples[0][3] = [-1, 1e9, null, 0];
	wild.samples[1] = [99, "x", 1e9, null, -5, "y", {}];
	wild.ledger = wild.cost = wild.reasons = null;
	const watch = await openWith("broken", escapeJson(wild));
	assert.ok((await watch.names()).includes("[unknown frame]"));
	await watch.close();
});

test("200 000 rows of 20 000 frames open and zoom quickly", async ({ openWith }) => {
	const file = escapeJson(large());
	let start = Date.now();
	const watch = await openWith("large", file);
	const drawn = (await watch.names()).length;
	const opened = Date.now() - start;
	const [name] = (await watch.row(1))[0];
	start = Date.now();
	await watch.frame(name).click();
	await watch.page.waitForSelector("#crumbs li:nth-child(2)");
	const zoomed = Date.now() - start;
	start = Date.now();
	await watch.search("function_77");
	const searched = Date.now() - start;
	start = Date.now();
	await watch.page.click("#tab-top");
	const top = Date.now() - start;
	console.log(`#   ${(file.length / 1e6).toFixed(0)} MB of JSON, ${drawn} frames drawn; open ${opened} ms, zoom ${zoomed} ms, search ${searched} ms, top ${top} ms`);
	assert.ok(drawn <= 6500);
	assert.ok(opened < 20000 && zoomed < 5000 && searched < 5000 && top < 5000);
	await watch.close();
});

test("stacks of 1 000 frames draw, and zoom shows the rest", async ({ openWith }) => {
	const watch = await openWith("deep", escapeJson(deep()));
	assert.match(await watch.text("#details"), /narrower branches not drawn/);
	await watch.frame("shared_400").evaluate((g) => g.dispatchEvent(new MouseEvent("click", { bubbles: true })));
	await watch.frame("branch_7_501").evaluate((g) => g.dispatchEvent(new MouseEvent("click", { bubbles: true })));
	assert.ok((await watch.names()).includes("branch_7_999"));
	assert.equal(await watch.frame("branch_7_501").isVisible(), true);
	const box = await watch.frame("branch_7_501").boundingBox();
	assert.ok(box.y > 0 && box.y < 800, "the zoomed frame is in view");
	await watch.close();
});

/* -- running ----------------------------------------------------------------------------------- */

async function screenshots(browser, file) {
	const beside = (suffix) => picture.replace(/(\.png)?$/, `${suffix}.png`);
	for (const [colorScheme, suffix] of [["light", ""], ["dark", "-dark"]]) {
		const watch = await Watch.open(browser, file, { colorScheme, viewport: { width: 1440, height: 860 } });
		if (colorScheme === "light" && await watch.page.locator("#flame g.frame").count() > 6)
			await watch.page.locator("#flame g.frame").nth(6).hover();
		await watch.page.screenshot({ path: beside(suffix) });
		if (colorScheme === "light") {
			await watch.page.click("#tab-top");
			await watch.page.screenshot({ path: beside("-top") });
		}
		await watch.context.close();
	}
}

async function main() {
	mkdirSync(work, { recursive: true });
	if (!existsSync(chromium)) {
		console.log(`# ${chromium} is missing: install chromium, or set FLYBALL_CHROMIUM`);
		console.log(`0 passed, 0 failed, ${tests.length} skipped`);
		return 0;
	}
	const playwright = installPlaywright();
	let file = recording;
	let data = null;
	if (!recording) {
		execFileSync(join(ui, "build.sh"), [ui, join(work, "page"), TEMPLATE], { stdio: "inherit" });
		parts.build = readFileSync(TEMPLATE, "utf8");
		data = small();
		file = pageWith("small", escapeJson(data));
	}
	const profileDir = mkdtempSync(join(tmpdir(), "flyball-chromium-"));
	const browser = await playwright.chromium.launch({
		executablePath: chromium,
		headless: true,
		env: { ...process.env, HOME: profileDir, XDG_CONFIG_HOME: profileDir, XDG_CACHE_HOME: profileDir },
		args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
			"--disable-component-update", "--disable-sync"],
	});
	const counts = { ok: 0, failed: 0, skipped: 0 };
	for (const { name, run, generic: any } of tests) {
		if (!name.includes(only) || (recording && !any))
			continue;
		const opened = [];
		const openFile = async (path, options) => {
			opened.push(await Watch.open(browser, path, options));
			return opened[opened.length - 1];
		};
		let skipped = "";
		try {
			await run({
				file, data,
				open: (options) => openFile(file, options),
				openWith: (base, json) => openFile(pageWith(base, json)),
				skip: (why) => (skipped = why),
			});
			console.log(skipped ? `ok - ${name} # SKIP ${skipped}` : `ok - ${name}`);
			counts[skipped ? "skipped" : "ok"]++;
		} catch (error) {
			counts.failed++;
			console.log(`not ok - ${name}`);
			console.log(String(error.stack).split("\n").slice(0, 14).map((line) => `#   ${line}`).join("\n"));
			for (const line of opened.flatMap((watch) => watch.trouble))
				console.log(`#   page: ${line}`);
		}
		await Promise.all(opened.map((watch) => watch.context.close().catch(() => {})));
	}
	if (picture)
		await screenshots(browser, file);
	await browser.close();
	rmSync(profileDir, { recursive: true, force: true });
	rmSync(join(work, "large.html"), { force: true }); // 48 MB
	console.log(`${counts.ok} passed, ${counts.failed} failed, ${counts.skipped} skipped`);
	return counts.failed ? 1 : 0;
}

process.exit(await main());
