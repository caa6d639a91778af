import { editFileTool } from './edit-file.ts';
import { listFilesTool } from './list-files.ts';
import { readFileTool } from './read-file.ts';
import { runCommandTool } from './run-command.ts';
import { searchFilesTool } from './search-files.ts';
import type { Tool } from './tool.ts';
import { writeFileTool } from './write-file.ts';

/** All that the built-in agent can do. */
export const toolTable: readonly Tool[] = [
  readFileTool,
  listFilesTool,
  searchFilesTool,
  editFileTool,
  writeFileTool,
  runCommandTool,
];
