import type * as http from 'node:http';
import type { Clock } from '../clock/clock.ts';
import type { Randomness } from '../clock/randomness.ts';
import type { MakeId } from '../ids/sortable-id.ts';
import type { Logger } from '../log/logger.ts';

/** Time, randomness, ids and log: what most parts need, and what tests replace. Options extend it. */
export interface Runtime {
  readonly clock: Clock;
  readonly randomness: Randomness;
  readonly makeId: MakeId;
  readonly logger: Logger;
}

/** The variables that the program was started with. */
export type Environment = Readonly<Record<string, string | undefined>>;

/**
 * `node:http` as `require` gives it. Importing it by name makes Node read all its exports, among them the getters that
 * load its own fetch and WebSocket: 2 MiB and some milliseconds of every start.
 */
export const nodeHttp: typeof http = process.getBuiltinModule('node:http');

/**
 * Options with every member, those too that may be absent. `satisfies Named<Options>` where options are put together: a
 * member that is added later and forgotten there does not compile.
 */
export type Named<Options> = { readonly [Name in keyof Required<Options>]: Options[Name] };
