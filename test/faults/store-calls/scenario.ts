import type { FakeClock } from '../../kit/fake-clock.ts';
import type { Scope } from '../../kit/running-program.ts';
import type { BreakableDatabase } from './broken-database.ts';
import type { Operation } from './check-operations.ts';
import type { Stored } from './check-steps.ts';
import type { Service } from './store-call-sites.ts';

/** One way to use a service while a call of its store fails. */
export interface Scenario {
  readonly name: string;
  readonly service: Service;
  play(stage: Stage): Promise<void>;
}

export interface Stage {
  readonly scope: Scope;
  /** When the call fails: before it was done, or after it. */
  readonly when: 'before' | 'after';
  /** From now on calls of these databases may fail: asked for once, after what has to be there was prepared. */
  watch(...databases: readonly BreakableDatabase[]): void;
  /** Does something whose calls do not fail: it looks at what came of the others. */
  aside<Result>(work: () => Promise<Result>): Promise<Result>;
  /** Asks for something; again, when nobody can know whether it was done. Gives what was told, if anything was. */
  step<Told>(step: Step<Told>): Promise<Told | undefined>;
  /** Gives the clock of the scenario. Its time passes while the run ends, too: what is stopped may wait for a moment that is to come. */
  passing<Passing extends FakeClock>(clock: Passing): Passing;
  /** From now on nothing fails, for a look at what there is in the end. */
  mend(): void;
  note(operation: Operation): void;
}

export interface Step<Told> {
  readonly name: string;
  ask(): Promise<Asked<Told>>;
  /** What the store holds of it. Left out for what changes nothing. */
  stored?(): Promise<Stored>;
  /** What happens before it is asked for again; otherwise that is at once. */
  pause?(): Promise<void>;
  /** The code with which it is to be refused. */
  readonly refusal?: string;
  /** With which it may be refused, too, once an attempt has done it and nobody was told so. */
  readonly whenDone?: readonly string[];
}

/** An answer, as all services have it. */
export interface Asked<Told> {
  /** Undefined for a refusal. */
  readonly told?: Told | undefined;
  /** Of a refusal, in lower case; empty for what was granted. */
  readonly code: string;
  /** What is wrong with the answer itself: not as it is documented, or with a secret in it. */
  readonly problems: readonly string[];
}
