import { dataFiles } from '../data-directory.ts';
import { dataDirectory, listenAddress } from '../settings.ts';
import type { StoreAccessOptions } from '../stores.ts';
import {
  clockFinding,
  databaseFindings,
  dataDirectoryFinding,
  diskFinding,
  type Finding,
  fine,
  legacyPlanFindings,
  portFinding,
  runningServer,
  runtimeFinding,
  workspaceFindings,
} from './findings.ts';
import { accessFindings, agentFindings, nodeFindings } from './setting-findings.ts';

/** Looks at everything that a server needs, as it would find it when it starts now. */
export async function diagnose(options: StoreAccessOptions): Promise<readonly Finding[]> {
  const { settings, environment, homeDirectory, clock } = options;
  const files = dataFiles(dataDirectory(settings, homeDirectory, environment.XDG_DATA_HOME));
  const folder = await dataDirectoryFinding(files.folder);
  const usable = folder.state !== 'broken';
  const serverPid = usable ? await runningServer(files) : undefined;
  const stored = usable
    ? [
        ...(serverPid === undefined ? [] : [fine('server', `runs (pid ${serverPid})`)]),
        ...(await databaseFindings(settings, files)),
        ...(await legacyPlanFindings(settings, files)),
        ...(await workspaceFindings(settings.bridge.workspace_roots, files.folder)),
        await diskFinding(files.folder),
        await clockFinding(files.folder, clock.now),
      ]
    : [];
  return [
    runtimeFinding(process.version),
    folder,
    ...stored,
    await portFinding(settings, serverPid),
    ...accessFindings(settings, listenAddress(settings).host),
    ...(await nodeFindings(settings)),
    ...(await agentFindings(settings, environment, files, clock)),
  ];
}
