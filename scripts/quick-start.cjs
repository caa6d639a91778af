// For `node --require`: test files are processes of their own, and each would load and compile the program anew.
'use strict';

const path = require('node:path');

require('./compile-cache.cjs').enableCompileCache();
require('./joined-packages.cjs').useJoinedPackages(path.dirname(__dirname));
