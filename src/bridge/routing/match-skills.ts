import type { AvailableSkill, RoutingInput } from '../contract/routing.ts';

export interface SkillMatch {
  readonly resolvedSkills: readonly string[];
  readonly skillResolutionSource: 'explicit' | 'local_match' | 'none';
  readonly needsSkillInstall: boolean;
  readonly skillInstallRequestId: string;
}

/**
 * Skills that were asked for count as they are; otherwise those whose id or label stands in the prompt as whole words
 * (contract/bridge 5). A skill that was asked for and is not installed, or not listed at all, needs to be installed.
 */
export function matchSkills(routing: RoutingInput, prompt: string): SkillMatch {
  const { explicitSkills = [], availableSkills = [] } = routing;
  if (explicitSkills.length > 0) {
    const installed = new Set(availableSkills.filter(isInstalled).map(idOf));
    const missing = [...new Set(explicitSkills)].filter((id) => !installed.has(id)).sort();
    return {
      resolvedSkills: explicitSkills,
      skillResolutionSource: 'explicit',
      needsSkillInstall: missing.length > 0,
      skillInstallRequestId: missing.length > 0 ? `skill-install:${missing.join(',')}` : '',
    };
  }
  const text = prompt.toLowerCase();
  const search: Search = { left: MAX_SEARCHED };
  const found = availableSkills
    .filter(isInstalled)
    .filter((skill) => namesOf(skill).some((name) => hasWords(text, name, search)));
  const resolvedSkills = [...new Set(found.map(idOf))];
  return {
    resolvedSkills,
    skillResolutionSource: resolvedSkills.length > 0 ? 'local_match' : 'none',
    needsSkillInstall: false,
    skillInstallRequestId: '',
  };
}

const MAX_NAMED_SKILLS = 20;
const MAX_SKILL_NAME = 64;

/** A prompt for an agent that finds skills by itself: it names those that the call asks for. */
export function promptWithSkills(prompt: string, skills: readonly string[]): string {
  if (skills.length === 0) return prompt;
  const names = skills.slice(0, MAX_NAMED_SKILLS).map((name) => name.replaceAll(/\s+/g, ' ').slice(0, MAX_SKILL_NAME));
  return `Use these skills if you have them: ${names.join(', ')}.\n\n${prompt}`;
}

function idOf(skill: AvailableSkill): string {
  return typeof skill === 'string' ? skill : skill.id;
}

function namesOf(skill: AvailableSkill): string[] {
  return typeof skill === 'string' ? [skill] : [skill.id, skill.label ?? ''];
}

function isInstalled(skill: AvailableSkill): boolean {
  return typeof skill === 'string' || skill.installed !== false;
}

/** How many more characters of the prompt may be looked at, for all skills together. */
interface Search {
  left: number;
}

/** Limits the search, because thousands of skills in a prompt of megabytes would hold up all other callers for seconds. */
const MAX_SEARCHED = 16_000_000;
/** To look around a place where a name was found takes as long as to search so many characters. */
const COST_OF_PLACE = 1000;

/** Whether `words` stands in `text` with no letter or digit right before or after it. */
function hasWords(text: string, words: string, search: Search): boolean {
  const wanted = words.trim().toLowerCase();
  if (wanted === '') return false;
  let from = 0;
  while (search.left > 0) {
    const at = text.indexOf(wanted, from);
    search.left -= (at === -1 ? text.length : at) - from + COST_OF_PLACE;
    if (at === -1) return false;
    from = at + 1;
    if (!endsInWord(text.slice(0, at)) && !startsWithWord(text.slice(at + wanted.length, at + wanted.length + 2))) {
      return true;
    }
  }
  return false;
}

function endsInWord(text: string): boolean {
  return /[\p{L}\p{N}_]$/u.test(text.slice(-2));
}

function startsWithWord(text: string): boolean {
  return /^[\p{L}\p{N}_]/u.test(text);
}
