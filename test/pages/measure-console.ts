import assert from 'node:assert/strict';
import { setTimeout as pause } from 'node:timers/promises';
import { chromium, type Page } from 'playwright-core';
import { openBridgeClient } from '../../bench/bridge/bridge-client.ts';
import { startScriptedBridge } from '../../bench/bridge/scripted-bridge.ts';
import type { ConsoleFigures } from '../../bench/console/suite.ts';
import { createScope } from '../kit/create-scope.ts';
import { quantile } from '../kit/samples.ts';

/**
 * Measures the console in Chromium, against the program as a user starts it: `npm run bench -- console`. The last line that
 * it prints is a `ConsoleFigures`.
 */

const quick = process.argv.includes('--quick');
const ROUNDS = quick ? 3 : 9;
const UPDATES_PER_SECOND = 200;
const STREAM_SECONDS = quick ? 20 : 30;
const STORED_UPDATES = 100_000;
const OFFLINE_SECONDS = quick ? 20 : 60;
const STEP_MS = 60_000;
const median = (values: readonly number[]) => quantile(values, 0.5);

/** Runs in the page before its own script: notes when words of the agent come, when they are painted, and what is sent. */
const PROBE = `
  globalThis.probe = { received: new Map(), painted: [], sent: [], paint: 0, shift: 0, newest: 0 };
  new PerformanceObserver((list) => { for (const e of list.getEntries()) probe.paint = e.startTime; }).observe({ type: 'largest-contentful-paint', buffered: true });
  new PerformanceObserver((list) => { for (const e of list.getEntries()) probe.shift += e.value; }).observe({ type: 'layout-shift', buffered: true });
  const words = /word-(\\d+)/g;
  globalThis.WebSocket = class extends WebSocket {
    constructor(...given) {
      super(...given);
      this.addEventListener('message', ({ data }) => {
        const now = performance.now();
        for (const [, number] of String(data).matchAll(words)) if (!probe.received.has(+number)) probe.received.set(+number, now);
      });
    }
  };
  const fetched = globalThis.fetch;
  globalThis.fetch = (...given) => { probe.sent.push([String(given[0]), performance.now()]); return fetched(...given); };
  addEventListener('click', () => { probe.clicked = performance.now(); }, true);
  const look = () => {
    const text = document.querySelector('[role=log]')?.textContent ?? '';
    const newest = Number(/word-(\\d+)\\s*$/.exec(text.slice(text.lastIndexOf('word-')).split(' ')[0] ?? '')?.[1] ?? 0);
    if (newest > probe.newest) {
      const from = probe.newest;
      probe.newest = newest;
      // A task after the frame: its paint is done.
      const done = new MessageChannel();
      done.port1.onmessage = () => {
        const now = performance.now();
        for (let number = from + 1; number <= newest; number += 1) {
          const at = probe.received.get(number);
          if (at !== undefined) probe.painted.push(now - at);
        }
      };
      done.port2.postMessage(0);
    }
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
`;

interface Probe {
  readonly painted: number[];
  readonly sent: readonly (readonly [string, number])[];
  readonly paint: number;
  readonly shift: number;
  readonly newest: number;
  readonly clicked: number;
}
declare const probe: Probe;

const scope = createScope();
try {
  const executablePath = process.env.CHROMIUM;
  assert.ok(executablePath, 'CHROMIUM names no browser: run this by npm run bench -- console');
  const browser = await chromium.launch({ executablePath });
  scope.after(() => browser.close());
  const { url } = await startScriptedBridge(scope);
  const bridge = await openBridgeClient(url);
  scope.after(() => bridge.close());
  let sessions = 0;
  const start = (taskPrompt: string) => {
    sessions += 1;
    const sessionId = `measured-${sessions}`;
    const ended = bridge.call('session.start', { sessionId, taskPrompt });
    // A turn that is stopped, or still runs when everything has been measured.
    ended.catch(() => undefined);
    return { sessionId, ended };
  };
  await start('say ready').ended;

  async function open(path: string, prepare?: (page: Page) => Promise<void>): Promise<Page> {
    const context = await browser.newContext({ viewport: { width: 1360, height: 800 } });
    const page = await context.newPage();
    page.setDefaultTimeout(STEP_MS);
    await page.addInitScript(PROBE);
    await prepare?.(page);
    await page.goto(`${url}${path}`);
    return page;
  }
  const close = (page: Page) => page.context().close();

  async function slow(page: Page): Promise<void> {
    const devTools = await page.context().newCDPSession(page);
    await devTools.send('Emulation.setCPUThrottlingRate', { rate: 4 });
    const bytes = 1_600_000 / 8;
    const network = { offline: false, latency: 150, downloadThroughput: bytes, uploadThroughput: bytes };
    await devTools.send('Network.emulateNetworkConditions', network);
  }

  async function boardPaint(prepare?: (page: Page) => Promise<void>): Promise<Pick<Probe, 'paint' | 'shift'>> {
    const page = await open('/console', prepare);
    await page.getByRole('link', { name: 'say ready' }).first().waitFor();
    await pause(500);
    const seen = await page.evaluate(() => ({ paint: probe.paint, shift: probe.shift }));
    await close(page);
    return seen;
  }
  async function barePaint(): Promise<number> {
    const page = await open('/healthz');
    await pause(500);
    const { paint } = await page.evaluate(() => ({ paint: probe.paint }));
    await close(page);
    return paint;
  }
  async function bareFrames(): Promise<readonly number[]> {
    const page = await open('/healthz');
    const frames = await page.evaluate<number[]>(`new Promise((resolve) => {
      const gaps = [];
      let last = performance.now();
      const step = () => {
        const now = performance.now();
        gaps.push(now - last);
        last = now;
        if (gaps.length < 200) requestAnimationFrame(step);
        else resolve(gaps);
      };
      requestAnimationFrame(step);
    })`);
    await close(page);
    return frames;
  }
  // The first visit builds the console and fills caches.
  await boardPaint();
  const paints: Pick<Probe, 'paint' | 'shift'>[] = [];
  const slowPaints: number[] = [];
  const barePaints: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    barePaints.push(await barePaint());
    paints.push(await boardPaint());
    slowPaints.push((await boardPaint(slow)).paint);
  }

  const frames = await bareFrames();
  const streamed = start(`pace ${UPDATES_PER_SECOND} ${STREAM_SECONDS}`);
  const watching = await open(`/console/sessions/${streamed.sessionId}`);
  // What came while the page was loading is not an update that is received and painted.
  await watching.waitForFunction((number) => probe.newest > number, UPDATES_PER_SECOND);
  await watching.evaluate(() => probe.painted.splice(0));
  await streamed.ended;
  await pause(500);
  const painted = await watching.evaluate(() => probe.painted);
  assert.ok(painted.length > (UPDATES_PER_SECOND * STREAM_SECONDS) / 3, `only ${painted.length} words were seen`);
  await close(watching);

  const stops: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const fast = start(`pace 500 ${STEP_MS / 1000}`);
    const page = await open(`/console/sessions/${fast.sessionId}`);
    await page.waitForFunction(() => probe.newest > 500);
    const before = await page.evaluate(() => probe.sent.length);
    await page.getByRole('button', { name: 'Stop' }).click();
    await fast.ended.catch(() => undefined);
    stops.push(
      await page.evaluate((from) => {
        const [, at] = probe.sent.slice(from).find(([address]) => !address.includes('/updates')) ?? ['', Number.NaN];
        return at - probe.clicked;
      }, before),
    );
    await close(page);
  }

  const long = start(`flood ${STORED_UPDATES}`);
  await long.ended;
  const opened: { readonly ms: number; readonly nodes: number; readonly megabytes: number }[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const page = await open(`/console/sessions/${long.sessionId}`);
    await page
      .getByRole('log')
      .getByText(`${STORED_UPDATES - 1}`)
      .last()
      .waitFor();
    const ms = await page.evaluate(() => performance.now());
    const nodes = await page.evaluate<number>(`document.querySelectorAll('*').length`);
    const devTools = await page.context().newCDPSession(page);
    await devTools.send('HeapProfiler.collectGarbage');
    const { usedSize } = await devTools.send('Runtime.getHeapUsage');
    opened.push({ ms, nodes, megabytes: usedSize / 1e6 });
    await close(page);
  }

  const away = start(`pace 20 ${OFFLINE_SECONDS + 20}`);
  const leaving = await open(`/console/sessions/${away.sessionId}`);
  await leaving.waitForFunction(() => probe.newest > 20);
  await leaving.context().setOffline(true);
  await pause(OFFLINE_SECONDS * 1000);
  const [before, at] = await leaving.evaluate(() => [probe.newest, performance.now()] as const);
  await leaving.context().setOffline(false);
  const known = before + OFFLINE_SECONDS * 15;
  await leaving.waitForFunction((number) => probe.newest >= number, known, { polling: 10 });
  const reconnectMs = (await leaving.evaluate(() => performance.now())) - at;
  await close(leaving);

  const figures: ConsoleFigures = {
    barePaintMs: median(barePaints),
    bareFrameMs: quantile(frames, 0.95),
    paintMs: median(paints.map(({ paint }) => paint)),
    slowPaintMs: median(slowPaints),
    layoutShift: Math.max(...paints.map(({ shift }) => shift)),
    updatesPerSecond: UPDATES_PER_SECOND,
    updateP95Ms: quantile(painted, 0.95),
    stopMs: median(stops),
    storedUpdates: STORED_UPDATES,
    openMs: median(opened.map(({ ms }) => ms)),
    openNodes: median(opened.map(({ nodes }) => nodes)),
    openMegabytes: median(opened.map(({ megabytes }) => megabytes)),
    offlineSeconds: OFFLINE_SECONDS,
    reconnectMs,
  };
  process.stdout.write(`${JSON.stringify(figures)}\n`);
} finally {
  await scope.end();
}
