/** esbuild puts imported styles into one file. */
declare module '*.css';
