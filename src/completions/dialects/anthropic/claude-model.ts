/** What the name of a model tells about what its API takes. Claude's versions differ, and say so by refusing. */
export interface ClaudeModel {
  /** It decides itself how much to think, guided by an effort; older ones get a budget. */
  readonly adaptive: boolean;
  /** Efforts beyond `high`. */
  readonly knowsExtraEffort: boolean;
  readonly mayStopThinking: boolean;
  /** How many of temperature and top_p it takes at once. */
  readonly samplingFields: 0 | 1 | 2;
  /** It follows a schema by itself (`output_config.format`, strict tools). */
  readonly followsSchema: boolean;
  readonly defaultMaxTokens: number;
}

/** Others that speak Claude's dialect: nothing is taken for granted. */
const UNKNOWN_MODEL: ClaudeModel = {
  adaptive: false,
  knowsExtraEffort: false,
  mayStopThinking: true,
  samplingFields: 2,
  followsSchema: false,
  defaultMaxTokens: 8192,
};

export function claudeModel(name: string): ClaudeModel {
  const at = name.indexOf('claude');
  if (at === -1) return UNKNOWN_MODEL;
  const words = name.slice(at).split(/[^a-z0-9]/);
  const version = versionOf(words);
  return {
    adaptive: version >= 406,
    knowsExtraEffort: version >= 407,
    mayStopThinking: !words.includes('mythos') && !words.includes('fable'),
    samplingFields: version >= 407 ? 0 : version >= 401 ? 1 : 2,
    followsSchema: version >= 405 || (version >= 401 && words.includes('opus')),
    defaultMaxTokens: version >= 307 ? 32_000 : version >= 305 ? 8192 : 4096,
  };
}

/** `claude-opus-4-6` is 406 and `claude-3-haiku-20240307` is 300; a name without a number is of a newer kind. */
function versionOf(words: readonly string[]): number {
  const first = words.findIndex((word) => /^\d{1,2}$/.test(word));
  if (first === -1) return 500;
  const minor = words[first + 1] ?? '';
  return Number(words[first]) * 100 + (/^\d{1,2}$/.test(minor) ? Number(minor) : 0);
}
