/** One part of the program in a played world. */
export interface Scenario {
  readonly name: string;
  /** The same seed gives the same run, to the letter. */
  play(seed: number): Promise<PlayedRun>;
}

export interface PlayedRun {
  /** Everything that happened, as text that can be compared. */
  readonly log: readonly object[];
  readonly violations: readonly string[];
  /** How much there was of what, to be added up over all runs. */
  readonly counts: Readonly<Record<string, number>>;
}
