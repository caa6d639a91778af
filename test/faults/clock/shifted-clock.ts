// Loaded before a program (`node --import`): its wall clock is off by as many milliseconds as the file says that is named
// in CLOCK_SHIFT_FILE. The monotonic clock and timers go on as they are, as on a machine whose clock is set.
import { readFileSync } from 'node:fs';

const LOOK_EVERY_MS = 50;

const { CLOCK_SHIFT_FILE: file = '' } = process.env;
const RealDate = globalThis.Date;
let shiftMs = readShift();

setInterval(() => {
  shiftMs = readShift();
}, LOOK_EVERY_MS).unref();

function readShift(): number {
  const shift = Number(readFileSync(file, 'utf8'));
  if (!Number.isFinite(shift)) throw new Error(`${file} does not hold a number`);
  return shift;
}

globalThis.Date = new Proxy(RealDate, {
  construct: (target, given, asked) =>
    Reflect.construct(target, given.length === 0 ? [RealDate.now() + shiftMs] : given, asked),
  apply: () => new RealDate(RealDate.now() + shiftMs).toString(),
  get: (target, name) => (name === 'now' ? () => RealDate.now() + shiftMs : Reflect.get(target, name)),
});
