// The documentation site: the repository's own Markdown files, and no page besides. `make docs` builds it, and fails
// on a broken link.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitepress';

const here = dirname(fileURLToPath(import.meta.url));
const root = resolve(here, '../../..');
const repository = 'https://github.com/doona-dp/doona';

// The site's pages. A link to any other file of the repository leads to the repository.
const pages = {
  'README.md': 'index.md',
  'www/sdk/README.md': 'sdk.md',
  'CONTRIBUTING.md': 'contributing.md',
  'SECURITY.md': 'security.md',
  'CHANGELOG.md': 'changelog.md',
};
const address = (file) => '/' + (pages[file] ?? file.replace(/^docs\//, '')).replace(/(index)?\.md$/, '');
const isPage = (file) => file in pages || /^docs\/(?!site\/).*\.md$/.test(file);

/** Returns the groups of README's section "Documents", as the site's navigation. */
function sidebar() {
  const [, section] = readFileSync(join(root, 'README.md'), 'utf8').match(/\n## Documents\n([^]*?)\n## /);
  const groups = [...section.matchAll(/\*\*(.+?)\*\*: (.+)/g)].map(([, text, links]) => ({
    text,
    items: [...links.matchAll(/\[(.+?)\]\((.+?)\)/g)].map(([, name, file]) => ({
      text: name[0].toUpperCase() + name.slice(1),
      link: address(file),
    })),
  }));
  if (groups.length === 0) throw new Error('README.md: no documents in section "Documents"');
  return groups;
}

/** Makes links lead to the site's pages, and to the repository for files that are no pages. */
function resolveLinks(md) {
  md.core.ruler.push('links', ({ env, tokens }) => {
    const from = dirname(relative(root, env.realPath ?? env.path));
    for (const token of tokens.flatMap((block) => block.children ?? [])) {
      const href = token.type === 'link_open' ? token.attrGet('href') : null;
      if (!href || /^([a-z]+:|#)/.test(href)) continue;
      const [path, anchor = ''] = href.split(/(?=#)/);
      const file = relative(root, resolve(root, from, path));
      if (!existsSync(join(root, file))) throw new Error(`${env.path}: no file ${file}`);
      token.attrSet('href', isPage(file) ? address(file) + anchor : `${repository}/blob/main/${file}${anchor}`);
    }
  });
}

/** Names a heading as GitHub does. */
function slugify(heading) {
  return heading.toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, '').replaceAll(' ', '-');
}

/** Fails where a link of the built site names a heading that its page does not have. */
function checkAnchors(outDir) {
  const files = readdirSync(outDir, { recursive: true }).filter((file) => file.endsWith('.html'));
  const html = Object.fromEntries(files.map((file) => [`/${file}`, readFileSync(join(outDir, file), 'utf8')]));
  const broken = Object.entries(html).flatMap(([page, text]) =>
    [...text.matchAll(/<a [^>]*href="([^":]*)#([^"]+)"/g)]
      .filter(([, path, id]) => {
        const target = path === '' ? page : path.replace(/\/$/, '/index') + '.html';
        return !html[target]?.includes(`id="${decodeURI(id)}"`);
      })
      .map(([, path, id]) => `${page}: ${path}#${id}`));
  if (broken.length > 0) throw new Error(`links to headings that are not there:\n${broken.join('\n')}`);
}

export default defineConfig({
  title: 'Doona',
  description: 'Private statistics from browsers',
  srcDir: root,
  outDir: join(root, 'build/docs'),
  srcExclude: ['**/node_modules/**', 'build/**', 'lab/**', 'testdata/**', 'wire/**', 'www/vendor/**', 'www/build/**'],
  rewrites: { ...pages, 'docs/:page*': ':page*' },
  cleanUrls: true,
  // Pages lie outside of this folder, which has the packages.
  vite: { resolve: { alias: [{ find: /^vue(?=$|\/)/, replacement: join(here, '../node_modules/vue') }] } },
  markdown: { html: false, config: resolveLinks, anchor: { slugify } },
  buildEnd: ({ outDir }) => checkAnchors(outDir),
  themeConfig: {
    nav: [{ text: 'Repository', link: repository }],
    sidebar: sidebar(),
    outline: [2, 3],
    search: { provider: 'local' },
  },
});
