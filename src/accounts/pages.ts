import { readFile } from 'node:fs/promises';
import { pagePolicy } from '../platform/http/page.ts';
import type { Reply } from '../platform/http/surface.ts';

/** The pages name an empty icon, and show no other picture. */
const POLICY = pagePolicy('img-src data:');

export interface OwnPage {
  readonly title: string;
  /** Path of the page's script. Undefined: it has none. */
  readonly script: string | undefined;
  /** HTML below the heading. Never made from data. */
  readonly main: string;
}

/** Sends one of our few pages for browsers. Its script does the rest: forms post JSON, which only a script can. */
export function sendPage(reply: Reply, { title, script, main }: OwnPage): unknown {
  const scriptTag = script === undefined ? '' : `<script type="module" src="${script}"></script>\n`;
  const html = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/setup/setup.css">
${scriptTag}</head>
<body>
<main>
<h1>${title}</h1>
${main}</main>
</body>
</html>
`;
  reply.header('content-security-policy', POLICY).header('cross-origin-opener-policy', 'same-origin');
  return reply.type('text/html; charset=utf-8').send(html);
}

/** Sends a script or a style of a page. */
export async function sendAsset(reply: Reply, file: URL): Promise<unknown> {
  const text = await readFile(file, 'utf8');
  return reply.type(`${file.pathname.endsWith('.js') ? 'text/javascript' : 'text/css'}; charset=utf-8`).send(text);
}
