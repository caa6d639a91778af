const LONGEST = 64;

/**
 * A user's name as it is shown; undefined when it cannot be one. Without "@", so that no name passes for an e-mail address
 * at the login, and without characters that cannot be seen.
 */
export function normalizeName(text: string): string | undefined {
  if (text.length > 4 * LONGEST || !text.isWellFormed()) return undefined;
  const name = text.normalize('NFC').trim();
  if (name === '' || [...name].length > LONGEST) return undefined;
  // NFKC turns some signs into "@": the full-width one, and whatever else compares equal.
  return /[\p{C}\p{Zl}\p{Zp}@]/u.test(name.normalize('NFKC')) ? undefined : name;
}

/** How names are compared: whatever looks the same up to case, width and composition is the same name. */
export function nameKey(name: string): string {
  return name.normalize('NFKC').trim().toLowerCase().normalize('NFKC');
}
