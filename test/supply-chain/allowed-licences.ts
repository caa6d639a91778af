const ALLOWED = new Set([
  'MIT',
  'MIT-0',
  'ISC',
  'BSD-2-Clause',
  'BSD-3-Clause',
  'Apache-2.0',
  '0BSD',
  'BlueOak-1.0.0',
  'Unlicense',
  'CC0-1.0',
  'Python-2.0',
  'Zlib',
]);

/** An SPDX expression without nesting: of what `OR` offers one must do, of what `AND` asks all must. */
export function isAllowedLicence(expression: string | undefined): boolean {
  if (expression === undefined) return false;
  const plain = expression.replaceAll(/[()]/g, ' ');
  return plain.split(' OR ').some((choice) => choice.split(' AND ').every((licence) => ALLOWED.has(licence.trim())));
}
