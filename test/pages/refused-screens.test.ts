import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startProgram } from '../kit/running-program.ts';
import { openAsAda } from './logged-in.ts';
import { openPage } from './open-page.ts';
import { SCREENS } from './picture-screens.ts';

const PHONE = { width: 390, height: 844 };
const REASON = 'This is refused for the sake of a test.';
/** Forms, which are complete without what they could offer. */
const FORMS: ReadonlySet<string> = new Set(['/console/new', '/console/runs/new', '/console/playground']);

test('each screen says why it cannot show its content, on a phone too, and the navigation stays', async (t) => {
  const { page, url } = await openAsAda(t, '/console');
  await page.setViewportSize(PHONE);
  const refusal = { status: 403, json: { error: 'refused', message: REASON, requestId: 'req-of-the-test' } };
  const rpcRefusal = { jsonrpc: '2.0', id: null, error: { code: -32020, message: REASON, data: { code: 'REFUSED' } } };
  await page.route('**/acp/rpc', (route) => route.fulfill({ status: 403, json: rpcRefusal }));
  await page.route(/\/(?:api\/(?:bridge|auth|system)|v1)\//, (route) =>
    /\/api\/auth\/(?:session|token\/jwt)$/.test(route.request().url()) ? route.continue() : route.fulfill(refusal),
  );
  const silent: string[] = [];
  const paths = new Set(SCREENS.filter(({ isPublic }) => isPublic !== true).map(({ path }) => path));
  for (const path of paths) {
    await page.goto(`${url}${path.replaceAll(/:\w+/g, 'unknown')}`);
    await page.getByRole('navigation', { name: 'Console' }).waitFor();
    if (FORMS.has(path)) continue;
    const told = page.getByRole('alert').filter({ hasText: REASON }).first();
    const isTold = await told.waitFor().then(
      () => true,
      () => false,
    );
    if (!isTold) silent.push(path);
    const width = await page.evaluate<number>('document.documentElement.scrollWidth');
    if (width !== PHONE.width) silent.push(`${path} is ${width} pixels wide`);
  }
  assert.deepEqual(silent, []);
});

test('screens of people lead to the login where nobody has logged in, and back', async (t) => {
  const program = await startProgram(t);
  const { page } = await openPage(t, `${program.url}/console/users`);
  const refusal = page.getByRole('alert').first();
  await refusal.getByText('You need to log in to see this.').waitFor();
  assert.equal(
    await refusal.getByRole('link', { name: 'Log in' }).getAttribute('href'),
    '/login?next=%2Fconsole%2Fusers',
  );
  await page.goto(`${program.url}/console/keys`);
  const link = page.getByRole('main').getByRole('link', { name: 'Log in' });
  assert.equal(await link.getAttribute('href'), '/login?next=%2Fconsole%2Fkeys');
});
