/** No body of this service needs more: a password of a megabyte is refused before anybody looks at it. */
export const BODY_LIMIT = 16 * 1024;
