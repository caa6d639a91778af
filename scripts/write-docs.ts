import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { documents } from './docs/documents.ts';

/** `npm run docs`: writes every page that is made from the sources. The docs tests compare them. */

for (const { path, make } of documents) {
  writeFileSync(fileURLToPath(new URL(`../${path}`, import.meta.url)), await make());
  console.log(path);
}
