/** One line of a diagnosis. `broken` means that the server cannot work as configured; `note` is worth knowing. */
export interface Finding {
  readonly name: string;
  readonly state: 'ok' | 'note' | 'broken';
  readonly text: string;
}

export const fine = (name: string, text: string): Finding => ({ name, state: 'ok', text });
export const note = (name: string, text: string): Finding => ({ name, state: 'note', text });
export const broken = (name: string, text: string): Finding => ({ name, state: 'broken', text });
