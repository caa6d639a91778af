import type { Admissions } from '../keys/admission.ts';

/** For a pipeline that has no keys, limits and records: the built-in agent of a bridge that runs alone. */
export const admitEverything: Admissions = {
  admit: () => ({ headers: {}, keepsContent: false, settle: () => undefined }),
};
