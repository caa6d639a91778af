import { nearestName } from '../../platform/config/nearest-name.ts';
import { DEMO_MODEL } from './demo-echo.ts';

const SUGGESTIONS = 3;

/**
 * Up to three names that somebody may have meant, for a message; the same model at any API comes first. When none is
 * near, the one that every machine has.
 */
export function nearestModels(wanted: string, names: Iterable<string>): string {
  const candidates = new Set(names);
  const found: string[] = [];
  for (const name of candidates) {
    if (found.length < SUGGESTIONS && wanted !== '' && name.endsWith(`/${wanted}`)) found.push(name);
  }
  for (const name of found) candidates.delete(name);
  while (found.length < SUGGESTIONS) {
    const name = nearestName(wanted, candidates);
    if (name === undefined) break;
    found.push(name);
    candidates.delete(name);
  }
  if (found.length > 0) return found.join(', ');
  return candidates.has(DEMO_MODEL) ? DEMO_MODEL : 'see /models';
}
