/**
 * Puts values in the place of `{{name}}`, each once: what came in is not looked at again, so nothing that an agent says
 * can make a template of its own. Names without a value stay as they are (contract/bridge 6).
 */
export function fillTemplate(template: string, values: ReadonlyMap<string, string>): string {
  return template.replaceAll(/\{\{([^{}]{1,128})\}\}/g, (whole, name: string) => values.get(name.trim()) ?? whole);
}
