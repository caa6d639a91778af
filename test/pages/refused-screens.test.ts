import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startProgram } from '../kit/running-program.ts';
import { logIn, openAsAda, PASSWORD } from './logged-in.ts';
import { openPage, untilEqual } from './open-page.ts';
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

test('the login page says why a provider refused, and nothing else that its address says', async (t) => {
  const program = await startProgram(t);
  const { page } = await openPage(t, `${program.url}/login?error=access_denied`);
  const told = page.getByRole('alert');
  for (const [code, text] of [
    ['access_denied', 'The login was cancelled at the provider.'],
    ['server_error', 'The login failed: server_error'],
    ['constructor', 'The login failed: constructor'],
    ['Call +1 555 0100 to get your account back', 'The login failed. Try again.'],
  ] as const) {
    await page.goto(`${program.url}/login?error=${encodeURIComponent(code)}`);
    await told.getByText(text, { exact: true }).waitFor();
  }
});

test('a login that has ended elsewhere leads to the login, and from there back, with the filters and what was written', async (t) => {
  const { page, url } = await openAsAda(t, '/console?view=list');
  const endLogin = () => page.context().request.delete(`${url}/api/auth/session`, { headers: { origin: url } });
  await page.getByRole('heading', { name: 'No sessions yet' }).waitFor();
  // Nobody touches the page: its socket is closed, and refused from then on.
  await endLogin();
  await page.waitForURL(/\/login\?next=/);
  await logIn(page, 'ada@example.com', PASSWORD);
  await page.waitForURL(`${url}/console?view=list`);
  // A page that has not heard of it still has the token for turns.
  await page.routeWebSocket('**/api/bridge/live', () => undefined);
  await page.goto(`${url}/console/new`);
  await page.getByLabel('What should be done?').fill('a task');
  await page.getByText('would do it').waitFor();
  await endLogin();
  await page.getByRole('button', { name: 'Start' }).click();
  await page.waitForURL(/\/login\?next=/);
  await logIn(page, 'ada@example.com', PASSWORD);
  await page.waitForURL(`${url}/console/new`);
  await untilEqual(() => page.getByLabel('What should be done?').inputValue(), 'a task');
});

test('a server that cannot answer who is logged in sends nobody to the login', async (t) => {
  const { page, url } = await openAsAda(t, '/console');
  await page.route('**/api/auth/session', (route) => route.fulfill({ status: 503, json: { message: 'Later.' } }));
  await page.reload();
  await page.getByRole('alert').getByText('Later.').waitFor();
  assert.equal(page.url(), `${url}/console`);
});
