// SPDX-License-Identifier: Apache-2.0
//
// Bundles the page into one HTML file: bundle.mjs SRC_DIR BUILD_DIR OUT_FILE (called by build.sh).
// The file loads nothing from outside. Its content security policy names the script and the style
// by hash, so whatever a profiled program is called, nothing else can run.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, renameSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";

const MARKER = "@FLYBALL_DATA@";

const [src, build, out] = process.argv.slice(2).map((path) => resolve(path));
const modules = join(build, "node_modules");
const esbuild = createRequire(join(build, "package.json"))("esbuild");

function sha256(text) {
	return `'sha256-${createHash("sha256").update(text, "utf8").digest("base64")}'`;
}

/* The licence text of every package the bundler took code from, each different text once. */
function licences(inputs) {
	const names = new Set();
	for (const input of inputs) {
		const match = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(input);
		if (match)
			names.add(match[1]);
	}
	const texts = new Map();
	for (const name of [...names].sort()) {
		const dir = join(modules, name);
		const file = readdirSync(dir).find((entry) => /^licen[cs]e/i.test(entry));
		if (!file)
			throw new Error(`${name} carries no licence file`);
		const text = readFileSync(join(dir, file), "utf8").trim();
		const version = JSON.parse(readFileSync(join(dir, "package.json"), "utf8")).version;
		texts.set(text, [...(texts.get(text) ?? []), `${name} ${version}`]);
	}
	return [...texts]
		.map(([text, users]) => `${users.join(", ")}\n\n${text}`)
		.join("\n\n----\n\n")
		.replaceAll("--", "- -"); // two dashes could end the HTML comment
}

async function main() {
	const result = await esbuild.build({
		entryPoints: [join(src, "src/main.js")],
		outdir: build,
		absWorkingDir: build,
		nodePaths: [modules],
		bundle: true,
		minify: true,
		write: false,
		metafile: true,
		format: "iife",
		target: ["chrome100", "firefox100", "safari15.4"],
		legalComments: "inline",
		charset: "ascii",
		logLevel: "error",
	});
	const output = (end) => result.outputFiles.find((file) => file.path.endsWith(end)).text.trim();
	const script = output(".js");
	const style = output(".css");
	if (/<\/(script|style)|<!--/i.test(script + style))
		throw new Error("the bundle holds a tag that would end its own element");

	const policy = [
		"default-src 'none'",
		`script-src ${sha256(script)}`,
		`style-src ${sha256(style)}`,
		"img-src data:", // the icon below
		"base-uri 'none'",
		"form-action 'none'",
		"require-trusted-types-for 'script'",
		"trusted-types 'none'",
	].join("; ");
	const parts = {
		POLICY: policy,
		STYLE: style,
		SCRIPT: script,
		LICENCES: licences(Object.keys(result.metafile.inputs)),
	};
	const html = readFileSync(join(src, "src/page.html"), "utf8")
		.replace(/@([A-Z]+)@/g, (whole, key) => parts[key] ?? whole);
	if (html.split(MARKER).length !== 2)
		throw new Error(`the page must hold ${MARKER} exactly once`);

	mkdirSync(dirname(out), { recursive: true });
	writeFileSync(`${out}.tmp`, html);
	renameSync(`${out}.tmp`, out);
}

main().catch((error) => {
	console.error(`ui/build.sh: cannot bundle the flame graph page: ${error.message}`);
	process.exit(1);
});
