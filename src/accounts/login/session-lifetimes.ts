/** Contract/accounts, Rules: Refresh. How long sessions last is in the settings (`accounts.sessions`). */
export const REFRESH_LIFETIME_MS = 7 * 24 * 3_600_000;
export const FAMILY_LIFETIME_MS = 30 * 24 * 3_600_000;
/** For this long the refresh token of before gives the same pair again, and the session token of before still counts. */
export const REPLAY_MS = 10_000;
