/** A message to one person, as plain text. `to` has passed the check of addresses: it holds no line break. */
export interface Mail {
  readonly to: string;
  readonly subject: string;
  readonly text: string;
  /** How long it is worth sending: a code that has ended helps nobody. */
  readonly lifetimeMs: number;
}

/** Resolves when the message is out of our hands; otherwise SMTP_TIMEOUT or SMTP_FAILED. */
export interface Mailer {
  /** `id` tells the same mail, tried again, from another one. */
  send(mail: Mail, id?: string): Promise<void>;
}
