/** Thrown by a command that has said all there is to say: the program ends with this code and prints nothing more. */
export class CommandExit extends Error {
  readonly code: number;

  constructor(code: number) {
    super(`exit ${code}`);
    this.name = 'CommandExit';
    this.code = code;
  }
}
