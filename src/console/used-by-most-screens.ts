/**
 * What most screens use. The build puts it into one file, because a browser loads six files at a time and asks for the next
 * ones when those have come (`inject` in scripts/build-console.cjs).
 */
import './data/accounts.ts';
import './data/bridge.ts';
import './data/completions.ts';
import './data/own-account.ts';
import './data/permission-choice.ts';
import './data/teams.ts';
import './parts/parts.tsx';
import './parts/work.tsx';
import './screens/session/attachments.tsx';
import './screens/session/next-message.ts';
import './screens/teams/own-teams.ts';
import './shell/shortcuts.ts';
import 'react-dom';
