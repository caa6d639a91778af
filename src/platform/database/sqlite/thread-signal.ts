/** Places in the memory that both sides of a thread share. The thread sleeps on the number of calls made to it. */
export const CALLS = 0;
/** The number of messages it has sent back, to be looked at without asking the port. */
export const ANSWERS = 1;
