import type { Complaint } from '../platform/config/problem.ts';
import { setting } from '../platform/config/setting.ts';
import { joinPath } from '../platform/config/setting-declaration.ts';
import { PERSONAL_DATA } from './guardrails/find-content.ts';

/** Checks of what goes to models and what comes from them. */
export const guardrails = setting.list(
  setting.group('', {
    name: setting.text({
      pattern: '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$',
      expects: 'a name of letters, digits, dots and dashes',
      description: 'Its name, for errors and the log.',
    }),
    kind: setting.choice(['pii', 'regex', 'webhook'], {
      description:
        'What it looks for: personal data and keys (`pii`), your own patterns (`regex`), or what your own program finds (`webhook`).',
    }),
    on: setting.choice(['both', 'request', 'response'], {
      default: 'both',
      description: 'What it checks: requests, responses, or both.',
    }),
    action: setting.choice(['block', 'mask', 'log'], {
      default: 'block',
      description:
        'What happens when it finds something. `block`: the call ends with 400 `content_blocked`. `mask`: a mask such as `[email]` replaces the text. `log`: only the log gets a line.',
    }),
    entities: setting.list(setting.choice(PERSONAL_DATA, {}), {
      description: 'For `pii`: which kinds of data. Empty: all of them.',
    }),
    patterns: setting.list(setting.text({}), {
      description:
        'For `regex`: JavaScript regular expressions. Each may match at most 200 characters, and must not have a repetition inside a repetition.',
    }),
    ignore_case: setting.flag({ default: false, description: 'For `regex`: ignore upper and lower case.' }),
    replacement: setting.text({ default: '', description: 'For `regex`: the mask. Empty: `[<name>]`.' }),
    url: setting.url({
      default: '',
      schemes: ['https', 'http'],
      description: 'For `webhook`: the address that gets the texts of each call as a POST with JSON.',
    }),
    token: setting.token({
      default: '',
      description: 'For `webhook`: sent to that address as `Authorization: Bearer`. Empty: none.',
    }),
    timeout: setting.duration({
      default: '5s',
      minimum: '10ms',
      maximum: '5m',
      description:
        'For `webhook`: how long to wait for its response. A webhook that fails or exceeds this time blocks the call, unless its action is `log`.',
    }),
  }),
  { description: 'Checks of everything that callers send to models and receive from them, in this order.' },
);

export const promptCache = setting.choice(['off', 'agents', 'auto'], {
  default: 'agents',
  description:
    'Whose calls get cache markers for Anthropic and Bedrock on the stable part of the prompt (instructions, tools, all but the last two messages), if the call is translated and the caller has set no markers: nobody’s (`off`), those of the agents that Trestle starts (`agents`), or everybody’s (`auto`).',
});

export const sharedCache = setting.group('Where cached responses, and thinking for clients that lose it, are kept.', {
  url: setting.url({
    schemes: ['redis', 'rediss'],
    credentials: true,
    default: '',
    description:
      'A Redis server that instances share, as `redis[s]://[user:password@]host[:port][/database]`. While it is unavailable, each instance uses its own memory. Empty: instances always use their own memory.',
  }),
  prefix: setting.text({
    default: 'trestle',
    pattern: '^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$',
    expects: 'letters, digits, dots, colons and dashes',
    description:
      'The prefix of its keys. Programs that share a Redis server but use the same names for different models need different prefixes.',
  }),
});

function unitPrice(unit: string) {
  return setting.number({
    default: 0,
    minimum: 0,
    maximum: 1000,
    description: `USD for one ${unit}, in addition to tokens.`,
  });
}

/** What a model costs that is not sold by tokens alone. */
export const unitPrices = {
  per_image: unitPrice('image that the model draws'),
  per_second: unitPrice('second of a recording that the model hears'),
  per_character: unitPrice('character that the model speaks'),
  per_search: setting.number({
    default: -1,
    minimum: -1,
    maximum: 1000,
    description:
      'USD for one web search that the API makes for the model, in addition to tokens. -1: unknown, so the cost of calls with searches is unknown, too.',
  }),
};

/** What all callers together may spend at a model API. */
export const apiBudgets = setting.record(
  setting.group('', {
    usd: setting.number({
      minimum: 0,
      maximum: 1_000_000_000,
      description: 'How much all calls to the API may cost. Models that are known to be free can always be called.',
    }),
    period: setting.choice(['day', 'month', 'total'], {
      default: 'month',
      description: 'The period. Days and months are in UTC.',
    }),
  }),
  {
    keyPattern: '^[a-z0-9][a-z0-9._-]{0,63}$',
    keyExpects: 'names of APIs',
    description:
      'Budgets of model APIs, in addition to those of keys, users, teams and tags. While the budget of an API is used up, an alias uses its other targets.',
  },
);

/** Budgets of all calls with a tag, whichever key they come with. */
export const tagBudgets = setting.record(
  setting.group('', {
    usd: setting.number({
      minimum: 0,
      maximum: 1_000_000_000,
      description: 'How much all calls with the tag may cost.',
    }),
    period: setting.choice(['day', 'month', 'total'], {
      default: 'month',
      description: 'The period. Days and months are in UTC.',
    }),
  }),
  {
    keyPattern: '^[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}$',
    keyExpects: 'tags',
    description:
      'Budgets of all calls with a tag (from their key or the header `x-tags`), in addition to those of keys, users and teams.',
  },
);

/** Where the records of calls go, besides the database. */
export const exports = setting.list(
  setting.group('', {
    name: setting.text({
      pattern: '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$',
      expects: 'a name of letters, digits, dots and dashes',
      description: 'Its name, under which its progress is stored.',
    }),
    kind: setting.choice(['webhook', 'file'], { description: 'Where the records go.' }),
    url: setting.url({
      default: '',
      schemes: ['https', 'http'],
      description: 'For `webhook`: the address that gets a POST with JSON for each batch.',
    }),
    token: setting.token({
      default: '',
      description: 'For `webhook`: sent to that address as `Authorization: Bearer`. Empty: none.',
    }),
    path: setting.path({
      default: '',
      description: 'For `file`: the file that gets one line of JSON for each call. Its folder must exist.',
    }),
    interval: setting.duration({
      default: '10s',
      minimum: '100ms',
      maximum: '1d',
      description: 'How often to check for new records.',
    }),
    content: setting.flag({
      default: false,
      description: 'Also send requests and responses, if they are stored.',
    }),
  }),
  {
    description:
      'Exports of call records, in batches, each record at least once. A new export begins with the first call after the start.',
  },
);

type Export = { readonly name: string; readonly kind: string; readonly url: string; readonly path: string };

export function checkExports(given: readonly Export[]): readonly Complaint[] {
  return given.flatMap(({ name, kind, url, path: file }, index) => {
    const path = joinPath('completions.exports', index);
    const complaints: Complaint[] = nameTwice(given, index, path, `the export "${name}" is there twice`);
    if (kind === 'webhook' && url === '') {
      complaints.push({ path: `${path}.url`, wrong: 'is missing', right: 'give the address that gets the records' });
    }
    if (kind === 'file' && file === '') {
      complaints.push({ path: `${path}.path`, wrong: 'is missing', right: 'give the file that gets the records' });
    }
    return complaints;
  });
}

function nameTwice(
  given: readonly { readonly name: string }[],
  index: number,
  path: string,
  wrong: string,
): Complaint[] {
  const isFirst = given.findIndex(({ name }) => name === given[index]?.name) === index;
  return isFirst ? [] : [{ path: `${path}.name`, wrong, right: 'give each its own name' }];
}

type Guardrail = {
  readonly name: string;
  readonly kind: string;
  readonly patterns: readonly string[];
  readonly url: string;
};

/** What must hold between the settings of each guardrail. */
export function checkGuardrails(rails: readonly Guardrail[]): readonly Complaint[] {
  return rails.flatMap(({ name, kind, patterns, url }, index) => {
    const path = joinPath('completions.guardrails', index);
    const complaints: Complaint[] = nameTwice(rails, index, path, `the guardrail "${name}" is there twice`);
    if (kind === 'webhook' && url === '') {
      complaints.push({ path: `${path}.url`, wrong: 'is missing', right: 'give the address that is asked' });
    }
    if (kind === 'regex' && patterns.length === 0) {
      complaints.push({ path: `${path}.patterns`, wrong: 'is empty', right: 'give at least one pattern' });
    }
    for (const [place, pattern] of patterns.entries()) {
      const wrong = faultOf(pattern);
      if (wrong === undefined) continue;
      const right = 'correct the pattern, or use several simple ones';
      complaints.push({ path: joinPath(`${path}.patterns`, place), wrong, right });
    }
    return complaints;
  });
}

const MAX_PATTERN = 1000;

function faultOf(pattern: string): string | undefined {
  if (pattern.length > MAX_PATTERN) return `is longer than ${MAX_PATTERN} characters`;
  try {
    new RegExp(pattern);
  } catch (error) {
    return `is not a regular expression: ${error instanceof Error ? error.message : String(error)}`;
  }
  return hasNestedRepetition(pattern)
    ? 'has a choice or a repetition inside of a repetition, or a back reference, which can take very long'
    : undefined;
}

/** Finds `(a+)+`, `(a|b)*` and `\1`: with these, time may double with each character of a text. */
export function hasNestedRepetition(pattern: string): boolean {
  /** For each open group: whether it has a repetition or a choice in it. */
  const groups: boolean[] = [false];
  const mark = () => {
    groups[groups.length - 1] = true;
  };
  for (let at = 0; at < pattern.length; at += 1) {
    const letter = pattern[at];
    if (letter === '\\') {
      at += 1;
      if (/[1-9k]/.test(pattern[at] ?? '')) return true;
    } else if (letter === '[') at = endOfClass(pattern, at);
    else if (letter === '(') groups.push(false);
    else if (letter === '|') mark();
    else if (letter === ')') {
      const isRich = groups.pop() === true;
      if (isRich && repeats(pattern, at + 1)) return true;
      if (isRich) mark();
    } else if (repeats(pattern, at) || (letter === '?' && pattern[at - 1] !== '(')) mark();
  }
  return false;
}

function endOfClass(pattern: string, start: number): number {
  for (let at = start + 1; at < pattern.length; at += 1) {
    if (pattern[at] === '\\') at += 1;
    else if (pattern[at] === ']') return at;
  }
  return pattern.length;
}

/** Whether a repetition stands here that may be taken more than once. `{3}` and `?` are none. */
function repeats(pattern: string, at: number): boolean {
  const letter = pattern[at];
  return letter === '*' || letter === '+' || (letter === '{' && /^\{\d{1,9},/.test(pattern.slice(at, at + 12)));
}

export const linkAllow = setting.list(setting.cidr({}), {
  description:
    'Private address ranges from which images and documents given by URL may be fetched, for model APIs that cannot fetch them (Bedrock).',
});

export const storageAllow = setting.list(
  setting.text({
    pattern: '^(?!https?:)(?!data:)[a-z][a-z0-9+.-]{0,30}://[^/\\s]{1,255}/(\\S*/)?$',
    expects:
      'a scheme other than http, https and data, a bucket, and a slash at the end, such as s3://acme-public/ or gs://acme-docs/reports/',
  }),
  {
    description:
      'Prefixes of addresses in storage, such as `s3://acme-public/` or `gs://acme-docs/reports/`, that callers may name in requests. The model API reads them with your credentials, so every caller can read all objects under them. Empty: none.',
  },
);
