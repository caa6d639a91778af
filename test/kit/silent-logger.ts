import type { Logger } from '../../src/platform/log/logger.ts';

const nothing = (): void => undefined;

/** A log that nobody reads. */
export const silentLogger: Logger = {
  debug: nothing,
  info: nothing,
  warn: nothing,
  error: nothing,
  isLevelEnabled: () => false,
  child: () => silentLogger,
  flush: nothing,
};
