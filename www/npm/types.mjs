// Joins the type declarations that tsc wrote for each module into one file for each export of the package, with only
// the public types and what these use: types.mjs FROM TO. It writes doona.d.ts, set.d.ts and testing.d.ts to the folder
// TO, and the first and the last for CommonJS as .d.cts. www/pack.sh runs it. `types.mjs FROM --report` prints the API report instead: the
// same without comments, which www/sdk/API.md records.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** @typedef {{name: string, comment: string, code: string, file: string}} Declaration */

/** @param {string} line */
const withoutComment = (line) => line.replace(/\/\*.*?\*\/|\/\/.*$/g, '').trimEnd();

/**
 * Splits a declaration file as tsc writes it: comments, imports, and declarations that begin at a line's start.
 * @param {string} folder @param {string} file without .d.ts
 */
function parse(folder, file) {
  const lines = readFileSync(join(folder, `${file}.d.ts`), 'utf8').split('\n');
  /** @type {Map<string, string>} the file that exports each imported name */
  const imports = new Map();
  /** @type {Declaration[]} */
  const declarations = [];
  /** @type {string[]} */
  const exported = [];
  /** @type {Set<string>} exported as a type, though a class */
  const typeOnly = new Set();
  let comment = '';
  for (let i = 0; i < lines.length; ) {
    const first = i;
    const line = String(lines[i]);
    if (line.startsWith('/**')) {
      while (!lines[i++]?.includes('*/'));
      comment = lines.slice(first, i).join('\n');
      continue;
    }
    let depth = 0;
    let done = line === '';
    while (!done) {
      const text = lines[i++];
      if (text === undefined) throw new Error(`${file}.d.ts:${first + 1}: the declaration does not end`);
      const code = withoutComment(text);
      if (/^\s*\/?\*/.test(code)) continue; // inside a comment
      for (const c of code) depth += '{(['.includes(c) ? 1 : '})]'.includes(c) ? -1 : 0;
      done = depth === 0 && /[;}]$/.test(code);
    }
    i = Math.max(i, first + 1);
    const code = lines.slice(first, i).join('\n');
    const names = /^(?:import|export)(?: type)? \{([^}]*)\}(?: from '\.\/(.*)\.js')?;$/.exec(code);
    if (names) {
      for (const one of String(names[1]).split(',').map((text) => text.trim()).filter(Boolean)) {
        const name = one.replace(/^type /, '');
        if (name !== one) typeOnly.add(name);
        if (/\s/.test(name)) throw new Error(`${file}.d.ts:${first + 1}: "${name}": want a name without "as"`);
        if (names[2]) imports.set(name, names[2]);
        if (code.startsWith('export')) exported.push(name);
      }
    } else if (code !== '') {
      const [, name] = /^(?:export )?(?:declare )?(?:class|interface|type|function|const) (\w+)/.exec(code) ?? [];
      if (!name) throw new Error(`${file}.d.ts:${first + 1}: unknown declaration ${code}`);
      declarations.push({ name, comment, code, file });
      if (code.startsWith('export')) exported.push(name);
    }
    comment = '';
  }
  return { imports, declarations, exported, typeOnly };
}

/**
 * Returns the declarations of an entry: those it exports, and then those that these use.
 * @param {string} folder @param {string} entry @param {ReadonlySet<string>} without names that another file declares
 */
function collect(folder, entry, without = new Set()) {
  /** @type {Map<string, ReturnType<typeof parse>>} */
  const files = new Map();
  /** @param {string} file */
  const open = (file) => files.get(file) ?? files.set(file, parse(folder, file)).get(file);
  /** @type {Map<string, Declaration>} */
  const found = new Map();
  const imported = new Set();
  /** @param {string} name @param {string} file @returns {void} */
  const add = (name, file) => {
    const parsed = /** @type {ReturnType<typeof parse>} */ (open(file));
    const all = parsed.declarations.filter((one) => one.name === name);
    const from = parsed.imports.get(name);
    if (all.length === 0) return from === undefined ? undefined : add(name, from);
    if (without.has(name)) return void imported.add(name);
    const known = found.get(name);
    if (known && known.file !== file) throw new Error(`two types ${name}, in ${known.file} and ${file}`);
    if (known) return;
    const code = all.map((one) => (one.comment ? `${one.comment}\n${one.code}` : one.code)).join('\n');
    found.set(name, { name, comment: '', code, file });
    const words = code.split('\n').filter((line) => !/^\s*\/?\*/.test(line)).map(withoutComment).join('\n')
      .replace(/(['"])(?:(?!\1).)*\1/g, '').match(/[A-Za-z_]\w*/g);
    for (const word of words ?? []) if (word !== name) add(word, file);
  };
  const { exported, typeOnly } = /** @type {ReturnType<typeof parse>} */ (open(entry));
  for (const name of exported) add(name, entry);
  const isClass = (/** @type {string} */ name) => /^export declare class/m.test(String(found.get(name)?.code));
  const classes = exported.filter((name) => typeOnly.has(name) && isClass(name));
  return { names: new Set(exported), classes, declarations: [...found.values()], imported };
}

/** Returns the code of a declaration, with "export" only if the entry exports it as it is. @param {Declaration} of
 * @param {Pick<ReturnType<typeof collect>, 'names' | 'classes'>} entry */
function exportedCode({ name, code }, { names, classes }) {
  return names.has(name) && !classes.includes(name) ? code : code.replaceAll(/^export (?:declare )?/gm, 'declare ');
}

/** Returns the exports of the classes that pages cannot create. @param {readonly string[]} classes */
const typeExports = (classes) => (classes.length > 0 ? `export type { ${classes.join(', ')} };` : 'export {};');

/**
 * @param {ReturnType<typeof collect>} of
 * @param {string} from the address of the file that declares the imported names
 */
function print({ declarations, imported, ...entry }, from) {
  const out = imported.size > 0 ? [`import type { ${[...imported].sort().join(', ')} } from '${from}';`] : [];
  for (const one of declarations) out.push(exportedCode(one, entry));
  out.push(typeExports(entry.classes)); // Without any such line, all declarations would be exported.
  return `${out.join('\n')}\n`;
}

/** Removes comments, empty lines and order. @param {ReturnType<typeof collect>} of */
function report(of) {
  const { declarations, names } = of;
  const sorted = declarations.toSorted((a, b) => Number(names.has(b.name)) - Number(names.has(a.name)) ||
    (a.name < b.name ? -1 : 1));
  const code = sorted.map((one) => exportedCode(one, of).replaceAll(/^\s*\/\*\*[^]*?\*\/\n/gm, ''));
  return [typeExports(of.classes), ...code.join('\n').split('\n').map(withoutComment).filter(Boolean)].join('\n');
}

const [from = '', to = ''] = process.argv.slice(2);
const main = collect(from, 'index');
const set = collect(from, 'set-index');
const testing = collect(from, 'testing', main.names);
if (to === '--report') {
  process.stdout.write(`# The API of the package doona

Each line that a page may rely on, and below it what these lines use. A test compares this file with the package. A
change of this file that makes a page's code wrong is a new major version, an addition a minor one. To renew it:
\`./www/pack.sh && node www/npm/types.mjs build/types --report >www/sdk/API.md\`.

## doona

\`\`\`ts
${report(main)}
\`\`\`

## doona/set

\`\`\`ts
${report(set)}
\`\`\`

## doona/testing

\`\`\`ts
${report(testing)}
\`\`\`
`);
} else {
  rmSync(to, { recursive: true, force: true });
  mkdirSync(to, { recursive: true });
  writeFileSync(join(to, 'set.d.ts'), print(set, ''));
  for (const ext of ['ts', 'cts']) {
    writeFileSync(join(to, `doona.d.${ext}`), print(main, ''));
    writeFileSync(join(to, `testing.d.${ext}`), print(testing, `./doona.${ext === 'ts' ? 'js' : 'cjs'}`));
  }
}
