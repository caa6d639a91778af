import { createFakeClock, type FakeClock } from '../../kit/fake-clock.ts';

/** A clock whose time passes in jumps. What happens each second would otherwise hide what happens every ten minutes. */
export function createJumpingClock(wallStart?: number): FakeClock {
  const clock = createFakeClock(wallStart);
  return { ...clock, advance: clock.sleep };
}
