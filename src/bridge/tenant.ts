/** There is one tenant for now; rows name theirs, so that there can be more. */
export const TENANT = 'default';
