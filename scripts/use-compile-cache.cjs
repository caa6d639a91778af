// For `node --require`: test files are processes of their own, and each would compile the program anew.
'use strict';

require('./compile-cache.cjs').enableCompileCache();
